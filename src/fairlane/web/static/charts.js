// Charts that answer the pointer: the figures of the step under it, and a span by dragging across.
// Without scripts each step has a title.
let from = null;

export function watchCharts() {
  document.addEventListener("pointerover", (event) => {
    const hit = event.target.closest?.(".chart .hit");
    if (!hit) return;
    show(hit);
    if (from && hit.closest("svg") === from.closest("svg")) mark(from, hit);
  });
  document.addEventListener("pointerout", (event) => {
    const chart = event.target.closest?.(".chart");
    if (chart && !event.relatedTarget?.closest?.(".chart .hit")) hide(chart);
  });
  document.addEventListener("pointerdown", (event) => {
    from = event.target.closest?.("[data-zoom] .hit") ?? null;
    if (from) event.preventDefault(); // No text is selected on the way.
  });
  document.addEventListener("pointerup", (event) => {
    const to = event.target.closest?.(".hit");
    if (from && to && to !== from && to.closest("svg") === from.closest("svg")) zoom(from, to);
    for (const hit of document.querySelectorAll(".hit.chosen")) hit.classList.remove("chosen");
    from = null;
  });
}

function between(one, other) {
  const hits = [...one.closest("svg").querySelectorAll(".hit")];
  const [first, last] = [hits.indexOf(one), hits.indexOf(other)].sort((a, b) => a - b);
  return hits.slice(first, last + 1);
}

function mark(one, other) {
  for (const hit of one.closest("svg").querySelectorAll(".hit.chosen")) hit.classList.remove("chosen");
  for (const hit of between(one, other)) hit.classList.add("chosen");
}

function zoom(one, other) {
  const chosen = between(one, other);
  const end = new Date(chosen.at(-1).dataset.at).getTime() + 1000 * Number(one.closest("svg").dataset.step);
  const address = new URL(location.href);
  address.searchParams.delete("range");
  address.searchParams.set("since", chosen[0].dataset.at);
  address.searchParams.set("until", new Date(end).toISOString());
  location.assign(address);
}

function show(hit) {
  const chart = hit.closest(".chart");
  hide(chart);
  hit.classList.add("here");
  const title = hit.querySelector("title");
  if (title) hit.dataset.text = title.textContent;
  title?.remove(); // One tip is enough.
  const tip = Object.assign(document.createElement("div"), { className: "tip", textContent: hit.dataset.text });
  chart.append(tip);
  const box = chart.getBoundingClientRect();
  const spot = hit.getBoundingClientRect();
  const left = spot.left - box.left + spot.width / 2 - tip.offsetWidth / 2;
  tip.style.left = `${Math.min(Math.max(left, 4), box.width - tip.offsetWidth - 4)}px`;
  tip.style.top = `${spot.top - box.top - tip.offsetHeight - 6}px`;
}

function hide(chart) {
  chart.querySelector(".tip")?.remove();
  chart.querySelector(".hit.here")?.classList.remove("here");
}
