// Rows with boxes: how many are selected, one box for all of them, and a range with Shift.
let last = null;

export function countSelected() {
  prepare();
  document.addEventListener("fairlane:updated", prepare);
  document.addEventListener("click", (event) => {
    const box = event.target;
    if (!box.matches?.("table.rows input[type=checkbox]")) return;
    const boxes = boxesOf(box.form);
    if (box.matches("thead input")) {
      for (const one of boxes) one.checked = box.checked;
    } else {
      const [from, to] = [boxes.indexOf(last), boxes.indexOf(box)].sort((a, b) => a - b);
      if (event.shiftKey && from >= 0) for (const one of boxes.slice(from, to + 1)) one.checked = box.checked;
      last = box;
    }
    show(box.form);
  });
}

function boxesOf(form) {
  return [...form.querySelectorAll("tbody input[type=checkbox]")];
}

function prepare() {
  for (const place of document.querySelectorAll("table.rows thead .pick")) {
    const all = Object.assign(document.createElement("input"), { type: "checkbox" });
    all.setAttribute("aria-label", "Select all rows of this page");
    place.replaceChildren(all);
    show(all.form);
  }
}

function show(form) {
  const count = boxesOf(form).filter((box) => box.checked).length;
  form.querySelector("[data-selected]").textContent = count ? `${count} selected` : "";
}
