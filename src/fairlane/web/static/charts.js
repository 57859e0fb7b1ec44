// Charts that answer the pointer: the figures of the step under it, and a span by dragging across.
// The figures of all steps are an attribute of the chart; without scripts its page shows them as a table.
let from = null;

export function watchCharts() {
  document.addEventListener("pointermove", point);
  document.documentElement.addEventListener("pointerleave", () => document.querySelectorAll(".chart").forEach(hide));
  document.addEventListener("pointerdown", (event) => {
    from = event.target.closest?.("[data-zoom]") ? stepUnder(event) : null;
    if (from) event.preventDefault(); // No text is selected on the way.
    point(event);
  });
  document.addEventListener("pointerup", (event) => {
    const to = from && stepUnder(event);
    if (to?.chart === from?.chart && to && to.step !== from.step) zoom(to, ...[from.step, to.step].sort((a, b) => a - b));
    from = null;
  });
}

function point(event) {
  const to = stepUnder(event);
  for (const tip of document.querySelectorAll(".chart .tip")) if (tip.parentElement !== to?.chart) hide(tip.parentElement);
  if (to) show(to, from?.chart === to.chart ? from.step : to.step);
}

function stepUnder(event) {
  const chart = event.target.closest?.(".chart");
  const svg = chart?.querySelector("svg[data-tips]");
  if (!svg) return null;
  const box = svg.getBoundingClientRect();
  if (event.clientX < box.left || event.clientX > box.right || event.clientY < box.top || event.clientY > box.bottom) return null;
  const tips = svg.dataset.tips.split("|");
  const step = Math.floor((tips.length * (event.clientX - box.left)) / box.width);
  return { chart, svg, box, tips, step: Math.min(step, tips.length - 1) };
}

function show({ chart, svg, box, tips, step }, begin) {
  const [when, ...values] = tips[step].split(";");
  const names = [...chart.querySelectorAll(".legend .name")].map((name) => name.textContent);
  const text = [when, ...values.map((value, index) => `${names[index]}  ${value}`)].join("\n");
  const tip = chart.querySelector(".tip") ?? chart.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
  if (tip.textContent !== text) tip.textContent = text;
  const mark = svg.querySelector(".mark") ?? svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
  const width = 1000 / tips.length;
  mark.setAttribute("class", begin === step ? "mark" : "mark chosen");
  mark.setAttribute("x", width * Math.min(begin, step));
  mark.setAttribute("width", width * (Math.abs(begin - step) + 1));
  mark.setAttribute("height", 100);
  const frame = chart.getBoundingClientRect();
  const left = box.left - frame.left + (box.width * (step + 0.5)) / tips.length - tip.offsetWidth / 2;
  tip.style.left = `${Math.min(Math.max(left, 4), frame.width - tip.offsetWidth - 4)}px`;
  tip.style.top = `${box.top - frame.top - tip.offsetHeight - 6}px`;
}

function hide(chart) {
  chart.querySelector(".tip")?.remove();
  chart.querySelector(".mark")?.remove();
}

function zoom({ svg }, first, last) {
  const at = (step) => new Date(Date.parse(svg.dataset.from) + 1000 * svg.dataset.step * step).toISOString();
  const address = new URL(location.href);
  address.searchParams.delete("range");
  address.searchParams.set("since", at(first));
  address.searchParams.set("until", at(last + 1));
  location.assign(address);
}
