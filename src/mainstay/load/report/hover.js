for (const svg of document.querySelectorAll("svg[data-tips]")) {
  const tips = JSON.parse(svg.dataset.tips), box = svg.viewBox.baseVal, figure = svg.closest("figure");
  const hair = svg.querySelector("line.base").cloneNode(), tip = document.createElement("div");
  hair.setAttribute("class", "hair"); hair.setAttribute("y1", 22); hair.setAttribute("y2", box.height - 30);
  tip.className = "tip";
  const hide = () => { hair.remove(); tip.remove(); };
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect(), at = (event.clientX - area.left) / area.width * box.width;
    const found = tips.reduce((best, one) => Math.abs(one[0] - at) < Math.abs(best[0] - at) ? one : best);
    hair.setAttribute("x1", found[0]); hair.setAttribute("x2", found[0]); svg.append(hair);
    tip.textContent = found[1]; tip.style.left = 0; figure.append(tip);
    const room = figure.clientWidth - tip.offsetWidth, left = found[0] / box.width * area.width - tip.offsetWidth / 2;
    tip.style.left = Math.max(0, Math.min(room, left)) + "px";
    tip.style.top = area.bottom - figure.getBoundingClientRect().top + "px";
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointercancel", hide);
}
