// What scripts add to pages that work without them: live updates, keys, charts that answer the pointer.
import { watchCharts } from "./charts.js";
import { listenToKeys } from "./keys.js";
import { goLive } from "./live.js";
import { countSelected } from "./rows.js";
import { suggestTenants } from "./tenants.js";

function forgetWhatWasDone() {
  // A message about an act is not shown again by a reload.
  const address = new URL(location.href);
  if (!address.searchParams.has("did")) return;
  for (const name of ["did", "n", "refused", "verb"]) address.searchParams.delete(name);
  history.replaceState(null, "", address);
}

function offerTheme() {
  const button = document.getElementById("theme");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("fairlane.theme", root.dataset.theme);
    } catch {
      // It lasts for this page.
    }
  });
}

function showWhereWeAre() {
  // On a phone the navigation is a strip, and this page may be beyond its end.
  const strip = document.querySelector("nav");
  const here = strip?.querySelector("[aria-current]");
  if (!here) return;
  const show = () => { strip.scrollLeft = here.offsetLeft - (strip.clientWidth - here.offsetWidth) / 2; };
  show();
  addEventListener("resize", show);
}

function begin() {
  showWhereWeAre();
  offerTheme();
  listenToKeys();
  watchCharts();
  countSelected();
  suggestTenants();
  goLive();
}

forgetWhatWasDone();
// In the frame after the first: what they ask about the page's layout does not hold up its drawing.
requestAnimationFrame(() => requestAnimationFrame(begin));
