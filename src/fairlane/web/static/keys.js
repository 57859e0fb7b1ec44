// Keys: g and a letter goes to a page, / searches, j and k move along rows, x selects, p pauses, t changes the theme.
const WAIT_MS = 1200;

export function listenToKeys() {
  let began = -Infinity;
  let row = -1;
  const rows = () => [...document.querySelectorAll("table.rows tbody tr")];

  function move(step) {
    const all = rows();
    if (!all.length) return;
    all[row]?.classList.remove("here");
    row = Math.min(Math.max(row + step, 0), all.length - 1);
    all[row].classList.add("here");
    all[row].scrollIntoView({ block: "nearest" });
    all[row].querySelector("[data-row]")?.focus({ preventScroll: true });
  }

  const acts = {
    "/": () => document.querySelector("input[type=search]")?.focus(),
    j: () => move(1),
    k: () => move(-1),
    x: () => rows()[row]?.querySelector("input[type=checkbox]")?.click(),
    p: () => document.getElementById("live")?.click(),
    t: () => document.getElementById("theme")?.click(),
    "?": () => document.getElementById("keys")?.showModal(),
    g: () => { began = performance.now(); },
  };

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      document.querySelectorAll("details.action[open]").forEach((open) => {
        open.open = false;
        open.querySelector("summary").focus();
      });
      if (isTyping?.matches("input[type=search]")) isTyping.blur();
      return;
    }
    if (isTyping) return;
    if (performance.now() - began < WAIT_MS) {
      began = -Infinity;
      const place = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (place) {
        event.preventDefault();
        place.click();
        return;
      }
    }
    if (Object.hasOwn(acts, event.key)) {
      event.preventDefault();
      acts[event.key]();
    }
  });

  document.addEventListener("click", (event) => {
    document.querySelectorAll("details.action[open]").forEach((open) => {
      if (!open.contains(event.target)) open.open = false;
    });
  });
}
