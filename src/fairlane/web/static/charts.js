// Charts that answer the pointer: the figures of the step under it. Without scripts each step has a title.
export function watchCharts() {
  document.addEventListener("pointerover", (event) => {
    const hit = event.target.closest?.(".chart .hit");
    if (hit) show(hit);
  });
  document.addEventListener("pointerout", (event) => {
    const chart = event.target.closest?.(".chart");
    if (chart && !event.relatedTarget?.closest?.(".chart .hit")) hide(chart);
  });
}

function show(hit) {
  const chart = hit.closest(".chart");
  const legend = [...chart.querySelectorAll(".legend .key")].map((key) => key.classList[1]);
  const at = new Date(hit.dataset.at);
  const values = hit.dataset.values.split("|").map((value, index) => `${legend[index]}  ${value}`);
  hide(chart);
  hit.classList.add("here");
  hit.querySelector("title")?.remove(); // One tip is enough.
  const tip = Object.assign(document.createElement("div"), { className: "tip" });
  tip.textContent = [at.toLocaleString([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" }), ...values].join("\n");
  chart.append(tip);
  const box = chart.getBoundingClientRect();
  const spot = hit.getBoundingClientRect();
  const left = spot.left - box.left + spot.width / 2 - tip.offsetWidth / 2;
  tip.style.left = `${Math.min(Math.max(left, 4), box.width - tip.offsetWidth - 4)}px`;
  tip.style.top = `${Math.max(spot.top - box.top - tip.offsetHeight - 6, 4)}px`;
}

function hide(chart) {
  chart.querySelector(".tip")?.remove();
  chart.querySelector(".hit.here")?.classList.remove("here");
}
