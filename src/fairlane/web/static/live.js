// Live updates: events of the server say that something happened; the page is read again and its live parts replaced.
// Nothing changes while somebody selects text, uses a part or reads further down in a list. Figures that could not be
// read again are marked as old, with their age.
import { figuresAge, figuresOf, moveTimes, readFigures } from "./times.js";

const KINDS = ["jobs", "job_dead", "job_stuck", "process_stopped", "worker_started", "worker_stopped", "worker_crashed",
  "worker_lost", "breaker_opened", "breaker_closed", "job_limit_warning", "alert_fired", "alert_resolved"];
const SHORTEST_MS = 2000;
const LONGEST_MS = 10000;
const SLOW_MS = 5000;
const COST = 100; // Rest at least this many times as long as the server worked: one percent of a core.

const LIVE = "[data-live][id]";
const parts = new WeakMap(); // The HTML of each part as the server sent it.

export function goLive() {
  readFigures(document);
  setInterval(() => { if (!someoneReads()) moveTimes(); }, 1000);
  const address = document.body.dataset.watch;
  const button = document.getElementById("live");
  if (!address || !button || !document.querySelector("[data-live]")) return;
  noteParts(document);
  let isOn = remembered() !== "off";
  let source = null;
  let timer = 0;
  let readAt = performance.now();
  let restMs = SHORTEST_MS;
  let isReading = false;
  let failure = ""; // What kept the last read from an answer.

  setInterval(show, 1000);
  button.hidden = false;
  button.addEventListener("click", () => {
    isOn = !isOn;
    remember(isOn ? "on" : "off");
    begin();
  });
  document.addEventListener("visibilitychange", begin);
  addEventListener("pagehide", () => source?.close());
  begin();

  function begin() {
    const isShown = document.visibilityState === "visible";
    source?.close();
    source = null;
    clearTimeout(timer.id);
    timer = 0;
    if (!isShown) return; // Nothing to show, and nothing to measure: the next page is drawn the sooner.
    show();
    if (!isOn) return;
    source = new EventSource(`${address}?${KINDS.map((kind) => `kind=${kind}`).join("&")}`);
    for (const kind of KINDS) source.addEventListener(kind, () => readIn(restMs));
    source.addEventListener("error", () => readIn(SHORTEST_MS)); // Its server may have gone.
    source.addEventListener("open", () => { document.body.dataset.stream = "open"; });
    readIn(LONGEST_MS);
  }

  function show() {
    const isBusy = isOn && someoneReads();
    const isStale = isOn && Boolean(failure);
    button.setAttribute("aria-pressed", String(isOn && !isBusy && !isStale));
    button.textContent = !isOn ? "Paused" : isStale ? "Stale" : isBusy ? "Waiting" : "Live";
    button.title = `Figures of ${figuresOf()} UTC. Live updates (p)`;
    const notice = document.getElementById("stale");
    notice.hidden = !isStale;
    const [said, age] = notice.children;
    const text = isStale ? `${failure} These are the figures of ${figuresOf()} UTC` : "";
    if (said.textContent !== text) said.textContent = text;
    age.textContent = isStale ? `, ${figuresAge()} ago` : "";
  }

  function fail(why) {
    failure = why;
    show();
  }

  function readIn(ms) {
    const due = Math.max(readAt + ms - performance.now(), 0);
    if (timer && timer.due <= performance.now() + due) return;
    clearTimeout(timer.id);
    timer = { id: setTimeout(read, due), due: performance.now() + due };
  }

  async function read() {
    timer = 0;
    show();
    if (isReading || !isOn) return;
    if (someoneReads()) {
      readAt = performance.now();
      readIn(1000);
      return;
    }
    isReading = true;
    const slow = setTimeout(() => fail("The server does not answer."), SLOW_MS);
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok) {
        const worked = /dur=([\d.]+)/.exec(answer.headers.get("server-timing") ?? "");
        restMs = Math.max(SHORTEST_MS, COST * Number(worked?.[1] ?? 0));
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        failure = "";
        if (isOn && !someoneReads()) {
          readFigures(fresh);
          replaceParts(fresh);
          moveTimes();
        }
      } else if (answer.status === 401) {
        location.reload();
      } else {
        fail(answer.status === 503 ? "The store is away." : `The server answers ${answer.status}.`);
      }
    } catch {
      fail("The server is away.");
    } finally {
      clearTimeout(slow);
      isReading = false;
      readAt = performance.now();
      show();
      if (isOn && document.visibilityState === "visible") readIn(failure ? SHORTEST_MS : Math.max(LONGEST_MS, restMs));
    }
  }
}

function replaceParts(fresh) {
  const [content, renewed] = [document, fresh].map((page) => page.getElementById("content"));
  const isUsed = content.contains(document.activeElement) && document.activeElement !== content;
  if (names(fresh) !== names(document) && !isUsed) {
    // A part has come or gone, such as why a job waits.
    noteParts(renewed);
    renew(content, renewed);
  }
  for (const part of document.querySelectorAll(LIVE)) {
    const next = fresh.getElementById(part.id);
    if (!next || next.innerHTML === parts.get(part)) continue;
    parts.set(part, next.innerHTML);
    renew(part, next);
  }
  document.dispatchEvent(new Event("fairlane:updated"));
}

// What somebody opened or closed stays so, and boxes stay where they were scrolled to.
function renew(place, next) {
  for (const details of place.querySelectorAll("details[id]")) {
    const twin = next.querySelector(`#${CSS.escape(details.id)}`);
    if (twin) twin.open = details.open;
  }
  const scrolled = new Map(boxes(place).map(([name, box]) => [name, [box.scrollLeft, box.scrollTop]]));
  place.replaceChildren(...next.childNodes);
  for (const [name, box] of boxes(place)) box.scrollTo(...(scrolled.get(name) ?? [0, 0]));
}

// Each with its number in its part: parts before it may come and go.
function boxes(place) {
  const counts = {};
  return Array.from(place.querySelectorAll(".scroll"), (box) => {
    const part = box.closest(LIVE)?.id ?? "";
    counts[part] = (counts[part] ?? 0) + 1;
    return [`${part} ${counts[part]}`, box];
  });
}

function names(page) {
  return Array.from(page.querySelectorAll(LIVE), (part) => part.id).join();
}

function noteParts(page) {
  for (const part of page.querySelectorAll(LIVE)) parts.set(part, part.innerHTML);
}

function someoneReads() {
  const selection = getSelection();
  if (selection && !selection.isCollapsed) return true;
  if (document.activeElement?.closest("[data-live]")) return true;
  if (document.querySelector("details.action[open], [data-live] input:checked, .chart .tip, dialog[open]")) return true;
  return Boolean(document.querySelector("[data-live=list]")) && scrollY > 160;
}

function remembered() {
  try {
    return sessionStorage.getItem("fairlane.live");
  } catch {
    return null;
  }
}

function remember(state) {
  try {
    sessionStorage.setItem("fairlane.live", state);
  } catch {
    // It lasts for this page.
  }
}
