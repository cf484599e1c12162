"use strict";
/* Which view is shown; keys; light and dark; news of runs that train. */
(function (M) {
  const { h } = M;
  const VIEWS = [["overview", "Overview"], ["games", "Games"], ["team", "Team"]];
  const KEYS = [
    ["1  2  3", "Overview, Games, Team"], ["t", "light, dark, as the system"], ["?", "these keys"],
    ["/", "Games: search a text"], ["j  k", "Games: down, up; in a game: next, previous"], ["Enter", "Games: open"],
    ["←  →", "Game: joint action before, after"], ["n  b", "Game: next turn, turn before"],
    ["s", "Game: probability of each token"], ["a", "Game: all samples"], ["p", "Game: prompts"], ["Esc", "Game: back to the list"],
  ];
  const LIVE_MS = 2000, CALM_MS = 10000;
  let shown = null, drawing = 0, stamps = "";

  /* ------------------------------------------------------------------------------------ the theme */

  const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
  const stored = () => { try { return localStorage.getItem("motet-theme"); } catch (error) { return null; } };
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let theme = stored() in THEMES ? stored() : "auto";

  function dress() {
    const dark = theme === "dark" || (theme === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    const button = document.getElementById("theme");
    button.textContent = THEMES[theme];
    button.setAttribute("aria-label", `Colors: ${THEMES[theme]}`);
  }
  function nextTheme() {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    try { localStorage.setItem("motet-theme", theme); } catch (error) { /* a page from disk may store nothing */ }
    dress();
    draw();
  }

  /* ------------------------------------------------------------------------------------- the view */

  function navigation(view, query) {
    const run = query.get("run");
    const current = view === "game" || view === "task" ? "games" : view;
    document.getElementById("views").replaceChildren(...VIEWS.map(([name, title]) => h("a", {
      href: M.link(name, name === "overview" ? { run: current === "overview" ? query.getAll("run") : null } : { run }),
      "aria-current": name === current ? "page" : null }, title)));
  }

  const stampOf = (runs, names) => JSON.stringify(runs.filter((run) => names.includes(run.name))
    .map((run) => [run.stamp, run.state, run.indexing, run.notes]));

  async function draw(quiet) {
    const mine = ++drawing, known = M.runs;
    const { view, query } = M.address();
    const main = document.getElementById("main");
    navigation(view, query);
    if (view === "games") M.lastList = location.hash;
    let next;
    try {
      if (!M.views[view]) throw new Error(`There is no view ${view}.`);
      if (!M.runs.length) throw new Error("There are no runs.");
      next = await M.views[view](query);
    } catch (error) {
      next = { title: "Motet", runs: [], nodes: [h("section", { class: "panel" }, h("p", { class: "empty", id: "error" }, error.message))] };
    }
    if (mine !== drawing) return;
    const scroll = window.scrollY;
    shown = next;
    stamps = stampOf(known, next.runs);
    document.title = `${M.plain(next.title)} · Motet`;
    main.replaceChildren(...M.nodes(next.nodes));
    main.dataset.view = view;
    window.scrollTo({ top: quiet ? scroll : 0 });
  }

  /* ------------------------------------------------------------------------------------- the keys */

  function help() {
    const dialog = document.getElementById("keys");
    if (dialog.open) return dialog.close();
    dialog.replaceChildren(h("h2", {}, "Keys"), h("dl", {}, KEYS.map(([keys, what]) => [
      h("dt", {}, keys.split("  ").flatMap((key, at) => at ? [" ", h("kbd", {}, key)] : [h("kbd", {}, key)])), h("dd", {}, what)])),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close"));
    dialog.showModal();
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
    const all = {
      1: () => { location.hash = "#/overview"; }, 2: () => document.querySelector("#views a:nth-child(2)").click(),
      3: () => document.querySelector("#views a:nth-child(3)").click(), "?": help, t: nextTheme, ...(shown && shown.keys),
    };
    const action = Object.hasOwn(all, event.key) ? all[event.key] : null;
    if (action) {
      event.preventDefault();
      action();
    }
  });

  /* ------------------------------------------------------------------------------- runs that train */

  const busy = () => M.runs.some((run) => run.state === "training" || run.indexing !== null);

  async function news() {
    try {
      M.runs = (await M.get("runs")).runs;
      const typing = document.activeElement && document.activeElement.closest("main input, main select");
      if (shown && !shown.still && !typing && stampOf(M.runs, shown.runs) !== stamps) await draw(true);
    } catch (error) { /* the banner says it */ }
    window.setTimeout(news, busy() ? LIVE_MS : CALM_MS);
  }

  async function begin() {
    dress();
    system.addEventListener("change", () => { dress(); draw(true); });
    document.getElementById("theme").addEventListener("click", nextTheme);
    document.getElementById("help").addEventListener("click", help);
    document.addEventListener("click", (event) => {
      const row = event.target.closest("#list tr[data-open]");
      if (row && !event.target.closest("a") && !String(getSelection())) location.hash = row.dataset.open;
    });
    window.addEventListener("hashchange", () => draw());
    try {
      M.runs = (await M.get("runs")).runs;
    } catch (error) {
      M.runs = [];
    }
    await draw();
    if (!M.exported) window.setTimeout(news, LIVE_MS);
  }
  begin();
})(window.motet);
