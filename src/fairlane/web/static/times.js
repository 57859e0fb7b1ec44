// Relative times that move, by the clock of the server: the browser's may be wrong.
let shownAt = 0; // When the figures on the page were read, by the server's clock, and how long ago that is here.
let readAt = 0;

export function readFigures(page) {
  shownAt = Date.parse(page.body.dataset.now);
  readAt = performance.now();
}

export function figuresOf() {
  return new Date(shownAt).toISOString().slice(11, 19);
}

export function figuresAge() {
  return words(Math.round((performance.now() - readAt) / 1000));
}

export function moveTimes() {
  const now = shownAt + performance.now() - readAt;
  for (const time of document.querySelectorAll("time[datetime]")) {
    const text = distance((now - Date.parse(time.dateTime)) / 1000);
    if (time.textContent !== text) time.textContent = text;
  }
}

// As formats.distance and formats.span of the server.
function distance(s) {
  if (Math.abs(s) < 1) return "now";
  return s > 0 ? `${words(Math.round(s))} ago` : `in ${words(Math.round(-s))}`;
}

function words(s) {
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m`;
  const [size, unit, smaller, name] = s < 86400 ? [3600, "h", 60, "m"] : [86400, "d", 3600, "h"];
  const rest = Math.floor((s % size) / smaller);
  return `${Math.floor(s / size)} ${unit}${rest ? ` ${rest} ${name}` : ""}`;
}
