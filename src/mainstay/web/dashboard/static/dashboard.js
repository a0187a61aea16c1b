// The script of the dashboard. The server renders the pages; this script updates them, sends the requests of buttons to
// the API, draws the small charts, and handles keys.
"use strict";

const find = (selector, within = document) => within.querySelector(selector);
const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];
const meta = (name) => find(`meta[name="${name}"]`)?.content ?? "";

// an update of the page keeps what the user has typed, opened or selected, and what this script has drawn
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
  !(name === "open" && node.tagName === "DETAILS") && !(["tabindex", "data-at"].includes(name) && node.matches(".wide"));
Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) =>
  !(node.nodeType === Node.ELEMENT_NODE && node.matches('.canvas, input[type="checkbox"], input[type="radio"], .act[aria-busy="true"]'));

// ---- live ---------------------------------------------------------------------------------------------

const live = {
  SOONEST_MS: 1000, // the shortest time between two refreshes
  POLL_MS: 5000, // when there is no stream
  SILENT_MS: 2500 * Number(meta("heartbeat")), // a live stream is never silent for this long
  ANSWER_MS: 20000, // by then the server has given up a slow store
  stream: null,
  looked: 0,
  heard: Date.now(), // time of the last message
  tried: 0, // time of the last connection attempt
  planned: 0,
  lost: false,

  get part() { return find("#live"); },

  start() {
    if (!this.part) return this.say("off", "");
    this.open();
    setInterval(() => { this.watch(); this.poll(); }, 1000);
    // a hidden page is not refreshed
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : ((this.heard = Date.now()), this.open(), this.look())));
    document.body.addEventListener("htmx:afterSettle", () => { this.lost = false; this.hear(); arrange(); this.follow(); });
    document.body.addEventListener("htmx:sendError", () => { this.lost = true; this.tell(); });
    document.body.addEventListener("htmx:responseError", (event) => {
      if (event.detail.xhr.status !== 410) { this.lost = true; this.hear(); }
    });
  },

  open() {
    const url = this.part?.dataset.stream;
    this.close();
    this.tried = Date.now();
    if (!url) return this.tell();
    this.url = url;
    this.seen = this.part.dataset.etag;
    const stream = (this.stream = new EventSource(url));
    stream.onopen = () => { this.lost = false; this.hear(); };
    stream.onerror = () => { this.lost = stream.readyState !== EventSource.CLOSED; this.tell(); };
    for (const kind of ["snapshot", "page", "event", "job", "progress", "cluster", "change", "cores", "journal", "status", "summary", "workflow"]) stream.addEventListener(kind, () => { this.hear(); this.soon(); });
    // for scripts of kinds, which show them without a refresh
    for (const kind of ["run", "window"]) stream.addEventListener(kind, ({ data }) => { this.hear(); document.dispatchEvent(new CustomEvent(`live-${kind}`, { detail: JSON.parse(data) })); });
    for (const kind of ["alive", "trouble"]) stream.addEventListener(kind, () => this.hear());
    // a settled job sends no more messages; polling notices a retry
    stream.addEventListener("end", () => { stream.close(); this.ended = true; this.look(); this.hear(); });
  },

  close() { this.stream?.close(); this.stream = null; this.ended = false; },

  // after an update the page may have another stream: the job was retried
  follow() {
    const { stream, etag } = this.part?.dataset ?? {};
    if (stream !== undefined && (stream !== this.url || (this.ended && etag !== this.seen))) this.open();
  },

  soon() {
    if (this.planned) return;
    const wait = Math.max(0, this.looked + this.SOONEST_MS - Date.now());
    this.planned = setTimeout(() => { this.planned = 0; this.look(); }, wait);
  },

  look() {
    if (document.hidden || !this.part) return;
    this.looked = Date.now();
    htmx.trigger(this.part, "refresh");
  },

  hear() { this.heard = Date.now(); this.tell(); },

  // a connection may die silently: the server hangs, the network drops packets, or the computer has slept
  watch() {
    if (document.hidden || !this.part) return;
    if (this.silence() && Date.now() - this.tried >= (this.isOpen() ? this.SILENT_MS : this.ANSWER_MS)) {
      htmx.trigger(this.part, "htmx:abort");
      this.open();
      this.look();
    }
    this.tell();
  },

  // the time since the last message, if it is too long
  silence() {
    const every = this.every();
    if (!every && !this.stream) return 0;
    const silent = Date.now() - this.heard;
    return silent >= this.SILENT_MS + (this.isOpen() ? 0 : every) ? silent : 0;
  },

  every() {
    // a page with neither is about one moment: the preview of what is to be done, say
    const { poll, stream } = this.part?.dataset ?? {};
    return poll ? Number(poll) * 1000 : !stream || (this.isOpen() && !this.lost) ? 0 : this.POLL_MS;
  },

  poll() {
    if (document.hidden || !this.part) return;
    const every = this.every();
    if (every && Date.now() - this.looked >= every) {
      this.look();
      if (this.stream?.readyState === EventSource.CLOSED && !this.ended) this.open();
    }
  },

  isOpen() { return this.stream?.readyState === EventSource.OPEN; },

  tell() {
    const silence = this.silence();
    document.body.classList.toggle("stale", this.lost || silence > 0);
    // a separate element, so that a screen reader does not read the seconds
    find("#link .silence").textContent = silence ? ` for ${lasting(silence / 1000)}` : "";
    if (silence) this.say("lost", this.lost ? "connection lost, no message" : "trying again, no message");
    else if (this.lost) this.say("lost", "connection lost, trying again");
    else if (this.isOpen()) this.say("live", "live");
    else if (this.ended) this.say("live", "settled");
    else if (this.stream && this.stream.readyState === EventSource.CONNECTING) this.say("wait", "connecting");
    else if (this.part?.dataset.stream || this.part?.dataset.poll) this.say("poll", "polling");
    else this.say("off", "");
  },

  say(state, words) {
    const link = find("#link");
    const said = find('[role="status"]', link);
    if (link.dataset.state === state && said.textContent === words) return;
    link.dataset.state = state;
    said.textContent = words;
  },
};

// ---- actions ------------------------------------------------------------------------------------------

let saidTimer = 0;
function say(words) {
  const said = find("#said");
  said.textContent = words;
  said.classList.add("shown");
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => said.classList.remove("shown"), 8000);
}

function bodyOf(form) {
  const body = JSON.parse(form.dataset.body || "{}");
  for (const field of form.elements) {
    if (!field.name || field.value === "") continue;
    body[field.name] = field.type === "number" ? Number(field.value) : field.value;
  }
  return body;
}

async function act(form) {
  const refusal = find(".refusal", form);
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": meta("csrf-token") };
  // the change applies to the version of the job when the dialog was opened
  if ("match" in form.dataset) headers["If-Match"] = form.closest("dialog").dataset.etag;
  refusal.hidden = true;
  form.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(form.getAttribute("action"), { method: form.dataset.act, headers, body: JSON.stringify(bodyOf(form)) });
    const result = await answer.json().catch(() => ({}));
    if (answer.status === 401) return void (location.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    if (answer.status === 412) throw new Error("The job has changed since you opened this dialog, so nothing was done. Close it, and check the job.");
    if (!answer.ok) throw new Error(result.detail ? (result.field ? `${result.field}: ${result.detail}` : result.detail) : `the server answered ${answer.status}`);
    form.closest("dialog")?.close();
    form.reset();
    done(form, result);
  } catch (error) {
    refusal.textContent = error instanceof TypeError ? "The server cannot be reached; the change may not have been made." : error.message;
    refusal.hidden = false;
  } finally {
    form.removeAttribute("aria-busy");
  }
}

function done(form, result) {
  const words = "matched" in result ? `${result.done} ${form.dataset.done}` + (result.refused ? `, ${result.refused} refused: ${result.refusals[0]?.error ?? ""}` : "") : form.dataset.done;
  if (form.dataset.then) {
    sessionStorage.setItem("said", words);
    location.href = form.dataset.then;
    return;
  }
  if (result.how === "linked") return void (location.href = `/batches/${result.id}${location.search}`);
  say(result.how === "nothing" ? "There is nothing to do: all outputs are present and intact." : words);
  live.open();
  live.look();
}

document.addEventListener("submit", (event) => {
  if ("act" in event.target.dataset) { event.preventDefault(); act(event.target); }
});
document.addEventListener("change", (event) => {
  if ("submits" in event.target.dataset) event.target.form.requestSubmit();
});
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) openDialog(opener);
  else if (event.target.tagName === "DIALOG") event.target.close(); // beside it
});

function openDialog(opener) {
  const dialog = find(`#${opener.dataset.opens}`);
  const { setAction, setDone, setTitle } = opener.dataset;
  if (setAction) { find("form.act", dialog).setAttribute("action", setAction); find("form.act", dialog).dataset.done = setDone; }
  if (setTitle) find("h2", dialog).textContent = setTitle;
  dialog.dataset.etag = live.part?.dataset.etag ?? "*";
  for (const refusal of findAll(".refusal", dialog)) refusal.hidden = true;
  dialog.showModal();
  find("input, select", dialog)?.focus();
}

// ---- selection ----------------------------------------------------------------------------------------

// kept by id, apart from the rows, which come and go with updates
const selection = {
  MOST: 100, // as many ids as fit into a URL
  ids: new Set(),

  start() {
    if (!find("#bulk")) return;
    document.addEventListener("change", ({ target }) => {
      if ("selects" in target.dataset) this.pick(target, target.checked);
      else if ("selectsPage" in target.dataset) for (const box of this.boxes()) this.pick(box, target.checked);
      else return;
      this.show();
    });
    find("[data-clears-selection]").addEventListener("click", () => { this.ids.clear(); this.show(); });
    // a browser restores the boxes when the user comes back to the page
    window.addEventListener("pageshow", () => { for (const box of this.boxes()) if (box.checked) this.pick(box, true); this.show(); });
    this.show();
  },

  boxes() { return findAll("[data-selects]"); },

  pick(box, wanted) {
    if (!wanted) this.ids.delete(box.value);
    else if (this.ids.size < this.MOST || this.ids.has(box.value)) this.ids.add(box.value);
    else say(`At most ${this.MOST} jobs can be selected; use a filter and “All that match” for more.`);
  },

  show() {
    const bulk = find("#bulk");
    if (!bulk) return;
    const boxes = this.boxes();
    const seen = new Set(boxes.map((box) => box.value));
    for (const box of boxes) box.checked = this.ids.has(box.value);
    const page = find("[data-selects-page]");
    if (page) { page.checked = boxes.length > 0 && boxes.every((box) => box.checked); page.indeterminate = !page.checked && boxes.some((box) => box.checked); }
    const unseen = [...this.ids].filter((id) => !seen.has(id));
    find("[data-unseen]", bulk).replaceChildren(...unseen.map((id) => Object.assign(document.createElement("input"), { type: "hidden", name: "id", value: id })));
    const count = this.ids.size;
    const words = count ? `${count} ${count === 1 ? "job" : "jobs"} selected` + (unseen.length ? `, ${unseen.length} not on this page` : "") : "No jobs selected";
    const said = find("[data-selected]", bulk);
    if (said.textContent !== words) said.textContent = words;
    for (const button of findAll("[data-needs-selection]", bulk)) button.disabled = !count;
  },
};

// ---- charts -------------------------------------------------------------------------------------------

const charts = new Map();
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function drawCharts() {
  for (const [box, chart] of charts) if (!box.isConnected) { chart.destroy(); charts.delete(box); }
  for (const box of findAll(".chart")) {
    const { x, lines } = JSON.parse(box.dataset.chart);
    const data = [x, ...lines.map((line) => line.values)];
    const known = charts.get(box);
    if (known) known.setData(data);
    else if (x.length > 1) charts.set(box, makeChart(box, lines, data));
  }
}

const SPAN_S = 600; // the time range of charts
const short = new Intl.NumberFormat("en", { notation: "compact" });

function makeChart(box, lines, data) {
  const small = box.classList.contains("small");
  const canvas = find(".canvas", box);
  const size = () => ({ width: Math.max(60, box.clientWidth), height: small ? 34 : 102 });
  const hide = { show: false };
  const grid = { stroke: colour("line"), width: 1 };
  const text = { stroke: colour("soft"), font: "11px system-ui, sans-serif" };
  const y = { ...text, grid, ticks: hide, size: 40, space: 24, gap: 2, values: (_, marks) => marks.map((mark) => short.format(mark)) };
  const ends = (chart) => [1, 0.5, 0].map((part) => chart.scales.x.max - part * SPAN_S);
  const x = { ...text, grid: hide, ticks: hide, size: 24, gap: 8, splits: ends, values: () => ["10 min ago", "5", "now"] };
  const chart = new uPlot({
    ...size(),
    legend: hide,
    cursor: { show: !small, points: { size: 5 }, drag: { x: false, y: false } },
    scales: { x: { range: (_, low, high) => [high - SPAN_S, high] }, y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    axes: small ? [hide, hide] : [x, y],
    padding: small ? [2, 0, 2, 0] : [6, 14, 0, 0],
    series: [{}, ...lines.map((line) => ({ label: line.name, stroke: colour(line.look), fill: `${colour(line.look)}22`, width: 1.6, points: hide }))],
  }, data, canvas);
  new ResizeObserver(() => chart.setSize(size())).observe(box);
  return chart;
}

// what depends on sizes, which the server does not know
function arrange() {
  drawCharts();
  selection.show();
  tick();
  for (const wide of findAll(".wide")) wide.tabIndex = wide.scrollWidth > wide.clientWidth ? 0 : -1;
  reveal();
}

// on a narrow screen, scroll the current element into view
function reveal() {
  for (const [box, current] of [[find(".top nav"), '[aria-current="page"]'], [find(".wide:has(.machine)"), ".box.now rect"]]) {
    const seen = box && find(current, box);
    // once for each state, so that the user can scroll elsewhere
    if (!seen || box.dataset.at === seen.parentElement.textContent) continue;
    box.dataset.at = seen.parentElement.textContent;
    const { left, width } = seen.getBoundingClientRect();
    box.scrollLeft += left - box.getBoundingClientRect().left - (box.clientWidth - width) / 2;
  }
}

function redrawCharts() {
  for (const chart of charts.values()) chart.destroy();
  charts.clear();
  drawCharts();
}

// ---- times, light and dark, keys ----------------------------------------------------------------------

function tick() {
  const part = live.part;
  if (!part) return;
  if (tick.now !== part.dataset.now) { tick.now = part.dataset.now; tick.ahead = Number(tick.now) - Date.now(); }
  const now = Date.now() + tick.ahead;
  for (const time of findAll("time[data-ms]")) time.textContent = ago(Number(time.dataset.ms), now);
}

function ago(at, now) {
  const seconds = Math.abs(now - at) / 1000;
  if (seconds < 1) return "now";
  return at <= now ? `${lasting(seconds)} ago` : `in ${lasting(seconds)}`;
}

function lasting(seconds) {
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]].find(([size]) => seconds >= size);
  return `${Math.floor(seconds / size)}${unit}`;
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  find('meta[name="color-scheme"]').content = root.dataset.theme;
  document.cookie = `mainstay-theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  redrawCharts();
}

function move(by) {
  const rows = findAll("[data-row] [data-open]");
  const at = rows.findIndex((link) => link.closest("[data-row]").contains(document.activeElement));
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))]?.focus();
}

let leader = false;
const keys = {
  j: () => move(1),
  k: () => move(-1),
  x: () => find('input[type="checkbox"]', document.activeElement.closest("[data-row]") ?? document.createElement("p"))?.click(),
  "/": () => (find("[data-search]") ? find("[data-search]").focus() : (location.href = `${find('[data-key="b"]').href}#text`)),
  "?": () => find("#help").showModal(),
  r: () => live.look(),
  t: switchTheme,
  g: () => { leader = true; setTimeout(() => (leader = false), 1500); },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  if (leader && event.key !== "g") {
    leader = false;
    find(`[data-key="${CSS.escape(event.key)}"]`)?.click();
    return;
  }
  const key = keys[event.key];
  if (key) { event.preventDefault(); key(); }
});

find("#theme").addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
if (matchMedia("(max-width: 46rem)").matches) for (const part of findAll(".narrow:not([data-used])")) part.open = false;
selection.start();
arrange();
setInterval(tick, 5000);
if (location.hash === "#text") find("[data-search]")?.focus();
if (sessionStorage.getItem("said")) { say(sessionStorage.getItem("said")); sessionStorage.removeItem("said"); }
live.start();
