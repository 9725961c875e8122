"use strict";
for (const box of document.querySelectorAll(".flame")) {
  const chart = box.querySelector(".chart");
  const frames = Array.from(chart.querySelectorAll(".f"), (element, index) => ({
    element, index,
    x: Number(element.dataset.x), w: Number(element.dataset.w), depth: Number(element.dataset.d),
    value: Number(element.dataset.v), name: element.querySelector("text").textContent, parent: Number(element.dataset.p), children: [],
  }));
  for (const frame of frames) if (frame.parent >= 0) frames[frame.parent].children.push(frame);
  const search = box.querySelector(".search"), state = box.querySelector(".state"), reset = box.querySelector(".reset");
  const folded = box.closest("details"); // a picture in a report; null in a file of its own
  const whole = frames[0].value || 1;
  let zoomed = frames[0], current = frames[0];

  const say = (text) => { state.textContent = text; };
  const described = (frame) => frame.element.querySelector("title").textContent;
  const percent = (value) => (100 * value / whole).toFixed(2) + " %";

  const LEAST = 24; // pixels of a frame that shows its name
  const hideNames = () => {
    const width = chart.getBoundingClientRect().width;
    for (const frame of frames)
      frame.element.classList.toggle("tiny", parseFloat(frame.element.getAttribute("width")) / 100 * width < LEAST);
  };

  const zoom = (target) => {
    zoomed = target;
    for (const frame of frames) {
      let x = (frame.x - target.x) / target.w, w = frame.w / target.w;
      const above = frame.depth < target.depth && frame.x <= target.x && frame.x + frame.w >= target.x + target.w;
      if (above) { x = 0; w = 1; }
      const seen = x + w > 1e-9 && x < 1 - 1e-9 && (above || frame.depth >= target.depth);
      frame.element.style.display = seen ? "" : "none";
      frame.element.classList.toggle("above", above);
      frame.element.setAttribute("x", 100 * x + "%");
      frame.element.setAttribute("width", 100 * w + "%");
    }
    reset.disabled = target === frames[0];
    hideNames();
  };

  const focus = (frame) => {
    current.element.setAttribute("tabindex", "-1");
    current = frame;
    frame.element.setAttribute("tabindex", "0");
    frame.element.focus();
    say(described(frame));
  };

  const find = () => {
    const wanted = search.value;
    let match = null;
    if (wanted) {
      try { const pattern = new RegExp(wanted, "i"); match = (name) => pattern.test(name); }
      catch { const plain = wanted.toLowerCase(); match = (name) => name.toLowerCase().includes(plain); }
    }
    const inside = new Array(frames.length).fill(false);
    let count = 0, value = 0;
    for (const frame of frames) {
      const hit = match !== null && match(frame.name);
      frame.element.classList.toggle("hit", hit);
      const covered = frame.parent >= 0 && inside[frame.parent];
      inside[frame.index] = hit || covered;
      if (hit) { count += 1; if (!covered) value += frame.value; }
    }
    say(match === null ? "" : count + (count === 1 ? " frame matches: " : " frames match: ")
      + value.toLocaleString("en") + " (" + percent(value) + ")");
  };

  const sibling = (frame, step) => {
    if (frame.parent < 0) return null;
    const all = frames[frame.parent].children.filter((other) => other.element.style.display !== "none");
    return all[all.indexOf(frame) + step] || null;
  };

  const frameOf = (event) => {
    const element = event.target.closest ? event.target.closest(".f") : null;
    return element ? frames[frames.findIndex((frame) => frame.element === element)] : null;
  };

  chart.addEventListener("click", (event) => {
    const frame = frameOf(event);
    if (frame) { zoom(frame); focus(frame); }
  });
  chart.addEventListener("mouseover", (event) => {
    const frame = frameOf(event);
    if (frame) say(described(frame));
  });
  chart.addEventListener("keydown", (event) => {
    const frame = frameOf(event);
    if (!frame) return;
    const widest = () => frame.children.reduce((best, one) => (best && best.w >= one.w ? best : one), null);
    let next = null;
    if (event.key === "ArrowDown") next = widest();
    else if (event.key === "ArrowUp") next = frame.parent >= 0 ? frames[frame.parent] : null;
    else if (event.key === "ArrowRight") next = sibling(frame, 1);
    else if (event.key === "ArrowLeft") next = sibling(frame, -1);
    else if (event.key === "Home") next = frames[0];
    else if (event.key === "Enter" || event.key === " ") zoom(frame);
    else return;
    event.preventDefault();
    if (next) { if (next.element.style.display === "none") zoom(next); focus(next); }
  });
  (folded ? box : document).addEventListener("keydown", (event) => {
    if (event.key === "Escape") { zoom(frames[0]); search.value = ""; find(); }
    else if (event.key === "/" && event.target !== search) { event.preventDefault(); search.focus(); }
  });
  for (const event of ["resize", "beforeprint"]) window.addEventListener(event, hideNames);
  if (folded) folded.addEventListener("toggle", hideNames); // what is folded has no width
  search.addEventListener("input", find);
  reset.addEventListener("click", () => { zoom(frames[0]); focus(frames[0]); });
  zoom(frames[0]);
}
