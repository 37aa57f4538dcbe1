"use strict";
// Copying a figure's data.
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const text = button.parentElement.querySelector("pre").textContent;
    const say = (word) => { button.textContent = word; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch (e) {
      // Opened from a file, some browsers keep the clipboard to themselves: select it instead.
      const range = document.createRange();
      range.selectNodeContents(button.parentElement.querySelector("pre"));
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      say(document.execCommand("copy") ? "Copied" : "Selected");
    }
  });
}
// Pointing at a survival curve: where each arm stands at that time.
function duration(ns) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const [factor, name] = units.find(([f]) => ns >= f) || units[3];
  return Number((ns / factor).toPrecision(3)) + " " + name;
}
function percent(share) {
  const digits = share > 0.01 ? 1 : share > 0.0001 ? 3 : 5;
  return ((1 - share) * 100).toFixed(digits) + " %";
}
for (const svg of document.querySelectorAll("svg.curves")) {
  const number = (name) => Number(svg.dataset[name]);
  const tip = svg.parentElement.querySelector(".tip");
  const finger = svg.querySelector(".finger");
  const curves = [...svg.querySelectorAll(".curve")].map((path) => ({
    arm: path.dataset.arm,
    t: path.dataset.t.split(" ").map(Number),
    s: path.dataset.s.split(" ").map(Number),
  }));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const part = (x - number("left")) / (number("right") - number("left"));
    if (part < 0 || part > 1) { tip.hidden = true; finger.setAttribute("d", ""); return; }
    const t = Math.pow(10, number("low") + part * (number("high") - number("low")));
    const lines = curves.map(({ arm, t: ts, s }) => {
      let i = ts.findIndex((v) => v > t);
      if (i < 0) i = ts.length;
      const share = i === 0 ? 1 : s[i - 1];
      return arm + ": " + percent(share) + " within " + duration(t);
    });
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    finger.setAttribute("d", "M" + x + " 14V" + number("bottom"));
    const figure = svg.parentElement.getBoundingClientRect();
    const left = Math.min(event.clientX - figure.left + 16, figure.width - tip.offsetWidth - 8);
    tip.style.left = Math.max(left, 8) + "px";
    tip.style.top = (event.clientY - figure.top + 18) + "px";
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; finger.setAttribute("d", ""); });
}
// On paper everything is open but the data.
addEventListener("beforeprint", () => {
  for (const d of document.querySelectorAll("details:not(.data)")) d.open = true;
});
