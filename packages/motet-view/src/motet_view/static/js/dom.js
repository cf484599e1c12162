"use strict";
/* Elements, numbers and texts. Data becomes text nodes only: nothing here parses HTML. */
window.motet = { views: {} };

(function (M) {
  const CONTROL = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
  const RUNS = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]+/gu;

  /* h("p", {class: "dim", onclick: f}, "text", node, [more], null) */
  M.h = function (tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name in { value: 1, checked: 1, selected: 1, disabled: 1, open: 1 }) element[name] = value;
      else element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...M.nodes(children));
    return element;
  };

  M.nodes = (children) => children.flat(4)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => child instanceof Node ? child : M.text(String(child)));

  function escaped(character) {
    const code = character.codePointAt(0);
    if (code > 0xffff) return "\\U" + code.toString(16).padStart(8, "0");
    return code > 0xff ? "\\u" + code.toString(16).padStart(4, "0") : "\\x" + code.toString(16).padStart(2, "0");
  }

  /* A text with its control and format characters written out, so that none takes effect. */
  M.text = function (text) {
    if (!CONTROL.test(text)) return document.createTextNode(text);
    const whole = document.createDocumentFragment();
    let done = 0;
    for (const match of text.matchAll(RUNS)) {
      whole.append(text.slice(done, match.index));
      const mark = document.createElement("span");
      mark.className = "control";
      mark.textContent = [...match[0]].map(escaped).join("");
      whole.append(mark);
      done = match.index + match[0].length;
    }
    whole.append(text.slice(done));
    return whole;
  };

  M.plain = (text) => String(text).replace(RUNS, (found) => [...found].map(escaped).join(""));

  /* A text in a fixed-width font. A long one ends in a button that shows the rest. */
  M.said = function (text, most = 6000) {
    const place = M.h("div", { class: "said", dir: "auto" });
    if (text.length <= most) {
      place.append(text === "" ? M.h("span", { class: "dim" }, "(empty)") : M.text(text));
      return place;
    }
    const rest = M.h("button", {
      type: "button", class: "more",
      onclick: () => place.replaceChildren(M.text(text)),
    }, `Show all ${text.length.toLocaleString("en")} characters`);
    place.append(M.text(text.slice(0, most)), "…", document.createElement("br"), rest);
    return place;
  };

  M.number = function (value, digits = 3) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    if (size < 1e-9) return "0";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("-", "−");
    const shown = size >= 1000 ? Math.round(value).toLocaleString("en") : value.toFixed(size >= 100 ? 1 : digits);
    return shown.replace("-", "−");
  };
  /* With the same number of digits for all values of a column. */
  M.fixed = (value, digits = 3) => value === null || value === undefined || Math.abs(value) >= 1e6 ? M.number(value)
    : (Math.abs(value) < 0.5 * 10 ** -digits ? 0 : value).toFixed(digits).replace("-", "−");
  M.signed = (value) => (value > 1e-9 ? "+" : "") + M.fixed(value, 2);
  M.percent = (value) => value === null || value === undefined ? "–" : `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
  M.ago = function (seconds) {
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
  };
  M.few = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;

  M.select = (label, options, value, change) => M.h("select", {
    "aria-label": label, title: label, onchange: (event) => change(event.target.value),
  }, options.map(([key, shown]) => M.h("option", { value: key, selected: String(key) === String(value) }, shown)));

  M.heat = function (element, share, color = "heat") {
    element.style.backgroundColor = `rgba(var(--${color}), ${(0.06 + 0.5 * Math.min(Math.max(share, 0), 1)).toFixed(3)})`;
    return element;
  };
})(window.motet);
