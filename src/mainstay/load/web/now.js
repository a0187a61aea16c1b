// The strip of a load test that runs: its numbers now and its last minute, from the windows of the live stream.
"use strict";

(() => {
  const SPAN_S = 60;
  let points = [], errors = 0, planned = false;
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const time = (s) => (s === null ? "–" : s < 1 ? `${Number((s * 1000).toPrecision(3))} ms` : `${Number(s.toPrecision(3))} s`);

  function draw() {
    planned = false;
    const strip = document.querySelector(".now-strip"), last = points.at(-1);
    if (!strip || !last) return;
    strip.hidden = false;
    const say = (name, text) => { strip.querySelector(`[data-now="${name}"]`).textContent = text; };
    say("rate", `${whole.format(last.rate)}/s`);
    say("p95", time(last.p95));
    say("users", whole.format(last.users));
    say("errors", whole.format(errors));
    for (const curve of strip.querySelectorAll("polyline")) {
      const name = curve.dataset.curve, high = Math.max(...points.map((point) => point[name] ?? 0)) || 1;
      const at = (point) => `${(600 - ((last.elapsed_s - point.elapsed_s) / SPAN_S) * 600).toFixed(1)},${(58 - ((point[name] ?? 0) / high) * 56).toFixed(1)}`;
      curve.setAttribute("points", points.map(at).join(" "));
    }
  }

  document.addEventListener("live-run", () => { points = []; errors = 0; });
  document.addEventListener("live-window", ({ detail: { numbers } }) => {
    errors += numbers.failed + numbers.raised;
    points.push(numbers);
    points = points.filter((point) => point.elapsed_s > numbers.elapsed_s - SPAN_S);
    if (!planned) { planned = true; requestAnimationFrame(draw); }
  });
})();
