"use strict";
/* The view of one game, and the view of one task through the training and in several runs. */
(function (M) {
  const { h } = M;
  const kept = { shade: false, all: false, prompts: false };
  const MOST_COLUMNS = 3;

  async function credit(run, id, kind) {
    if (kind !== "train") return { values: [], why: "" };
    try {
      const found = await M.get("advantages", { run, id });
      return { values: found.advantages.map(([path, agent, at, value]) => [M.advantageKey(path, agent, at), value]), why: found.why };
    } catch (error) {
      return { values: [], why: error.message };
    }
  }

  const toggle = (label, name, key, redraw) => h("button", { type: "button", id: `toggle-${name}`, "aria-pressed": String(kept[name]),
    title: `${label} (${key})`, onclick: () => { kept[name] = !kept[name]; redraw(); } }, label);

  function fieldsOf(task) {
    const rows = Object.entries(task.fields);
    if (!rows.length) return null;
    if (JSON.stringify(task.fields).length < 200) {
      return h("div", { class: "result" }, rows.map(([name, value]) => h("span", {}, h("span", { class: "dim" }, `${name} `),
        h("span", { class: "mono" }, typeof value === "string" ? value : JSON.stringify(value)))));
    }
    return h("section", { class: "panel" }, h("details", { class: "body", open: rows.length <= 6 && JSON.stringify(task.fields).length < 600 },
      h("summary", {}, `Task: ${rows.length} field${rows.length === 1 ? "" : "s"}`),
      h("table", { class: "fields" }, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("td", { class: "dim" }, name),
        h("td", {}, M.said(typeof value === "string" ? value : JSON.stringify(value), 2000))))))));
  }

  M.views.game = async function (query) {
    const run = M.runOf(query), id = Number(query.get("id"));
    const game = await M.get("game", { run, id });
    let path = query.get("path") ? query.get("path").split(".").map(Number) : [];
    const advantages = new Map();
    let focused = 0, why = game.kind === "train" ? "Advantages are being computed…" : "";
    const body = h("div", { class: "rounds" });
    const toggles = h("div", { class: "head" });
    const told = h("p", { class: "small dim", id: "credit" });

    const rounds = () => game.tree ? M.chain(game.tree, path) : [];
    const pick = (depth, at) => {
      path = [...rounds().slice(0, depth).map((one) => one.at), at];
      focused = depth;
      M.replace("game", { run, id, path: path.join(".") });
      redraw();
    };
    const say = () => {
      told.textContent = why;
      told.hidden = !why;
    };
    function redraw() {
      const scroll = window.scrollY;
      toggles.replaceChildren(
        toggle("Token probabilities", "shade", "s", redraw), toggle("All samples", "all", "a", redraw),
        toggle("Prompts", "prompts", "p", redraw), ...(kept.shade ? [M.shadeLegend()] : []));
      say();
      body.replaceChildren(...rounds().map((one, depth) => M.roundSection(one, {
        ...kept, advantages, focused: depth === focused && rounds().length > 1, pick: (at) => pick(depth, at) })));
      window.scrollTo({ top: scroll });
    }
    const step = (by) => {
      const one = rounds()[focused];
      if (one) pick(focused, Math.min(Math.max(one.at + by, 0), one.round.outcomes.length - 1));
    };
    const turn = (by) => {
      focused = Math.min(Math.max(focused + by, 0), rounds().length - 1);
      redraw();
      body.children[focused]?.scrollIntoView({ block: "start", behavior: "smooth" });
    };
    const to = (other) => () => { if (other !== null) location.hash = M.link("game", { run, id: other }); };
    const flip = (name) => () => { kept[name] = !kept[name]; redraw(); };
    redraw();
    credit(run, id, game.kind).then((found) => {
      found.values.forEach(([of, value]) => advantages.set(of, value));
      why = found.why;
      say();
      M.showAdvantages(body, advantages);
    });
    const back = M.lastList && M.lastList.includes(`run=${encodeURIComponent(run)}`) ? M.lastList : M.link("games", { run });
    return {
      title: `Game ${id}`, runs: [], still: true,
      nodes: [
        h("div", { class: "head game-head" },
          h("div", {}, h("div", { class: "small dim" }, h("a", { href: back }, `Games of ${run}`), ` / ${game.kind === "train" ? "step" : "evaluation after step"} ${game.step}`),
            h("h1", {}, M.text(M.few(game.task.id, 200)))),
          h("span", { class: "push" }),
          h("a", { class: "button", id: "follow", href: M.link("task", { run, task: game.task.id, pick: `${run}:${id}` }) }, "Follow this task"),
          h("button", { type: "button", disabled: game.previous === null, title: "previous game (k)", onclick: to(game.previous) }, "Previous"),
          h("button", { type: "button", disabled: game.next === null, title: "next game (j)", onclick: to(game.next) }, "Next")),
        game.fault && M.faultOf(game.fault), fieldsOf(game.task), toggles, told, body,
        game.greedy && h("section", { class: "panel" }, h("details", { class: "body" }, h("summary", {}, "Greedy path (not trained on)"),
          M.chain(game.greedy, []).map((one) => M.roundSection(one, { ...kept, lean: true, pick: () => {} })))),
      ],
      keys: { ArrowLeft: () => step(-1), ArrowRight: () => step(1), n: () => turn(1), b: () => turn(-1),
        j: to(game.next), k: to(game.previous), s: flip("shade"), a: flip("all"), p: flip("prompts"),
        Escape: () => { location.hash = back; } },
    };
  };

  /* ------------------------------------------------------------------------------------- one task */

  function spread(games) {
    const train = games.filter((game) => game.kind === "train");
    const from = train.length ? train : games;
    return [...new Set([0, Math.floor((from.length - 1) / 2), from.length - 1])].map((at) => from[at]).filter(Boolean);
  }

  function line(run, games, picked, change) {
    const rewards = games.map((game) => game.reward).filter((one) => one !== null);
    const low = Math.min(...rewards), high = Math.max(...rewards);
    return h("div", { class: "timeline" }, h("h3", {}, run), h("div", { class: "strip" }, games.map((game) => {
      const name = `${run}:${game.id}`;
      const button = h("button", { type: "button", class: "act", "aria-pressed": String(picked.includes(name)),
        title: `${game.kind === "train" ? "training" : "held out"}, step ${game.step}, reward ${M.number(game.reward)}`, onclick: () => change(name) },
      h("span", { class: "at" }, `${game.kind === "train" ? "" : "h "}${game.step}`), h("span", { class: "small num" }, M.fixed(game.reward, 2)));
      if (game.reward !== null && !picked.includes(name)) M.heat(button, high > low ? (game.reward - low) / (high - low) : 0);
      return button;
    })));
  }

  async function column(name) {
    const cut = name.lastIndexOf(":");
    const run = name.slice(0, cut), id = Number(name.slice(cut + 1));
    const game = await M.get("game", { run, id });
    const place = h("div", { class: "column" });
    let path = [];
    const redraw = () => {
      const rounds = game.tree ? M.chain(game.tree, path) : [];
      place.replaceChildren(
        h("div", { class: "head" }, h("h2", {}, `${run}, ${game.kind === "train" ? "step" : "held out after step"} ${game.step}`), h("span", { class: "push" }),
          h("a", { href: M.link("game", { run, id }) }, "Open")),
        ...M.nodes([game.fault && M.faultOf(game.fault)]),
        ...rounds.map((one, depth) => M.roundSection(one, { shade: kept.shade, lean: true, pick: (at) => {
          path = [...rounds.slice(0, depth).map((other) => other.at), at];
          redraw();
        } })));
    };
    redraw();
    return { place, redraw };
  }

  M.views.task = async function (query) {
    const task = query.get("task"), runs = M.runs.map((run) => run.name);
    const found = (await Promise.all(runs.map((run) => M.get("task", { run, task })))).filter((one) => one.games.length);
    const known = new Set(found.flatMap((one) => one.games.map((game) => `${one.run}:${game.id}`)));
    let picked = query.getAll("pick").filter((name) => known.has(name)).slice(-MOST_COLUMNS);
    if (picked.length <= 1 && found.length) {
      const own = found.find((one) => one.run === query.get("run")) || found[0];
      const first = found.length > 1 ? found.map((one) => [one.run, spread(one.games).at(-1)]) : spread(own.games).map((game) => [own.run, game]);
      picked = [...new Set([...first.map(([run, game]) => `${run}:${game.id}`), ...(picked.length && found.length === 1 ? [] : picked)])].slice(0, MOST_COLUMNS);
    }
    const change = (name) => {
      const next = picked.includes(name) ? picked.filter((one) => one !== name) : [...picked, name].slice(-MOST_COLUMNS);
      location.hash = M.link("task", { run: query.get("run"), task, pick: next.length ? next : [name] });
    };
    const columns = await Promise.all(picked.map(column));
    const toggles = h("div", { class: "head" });
    const redraw = () => {
      toggles.replaceChildren(toggle("Token probabilities", "shade", "s", redraw), ...(kept.shade ? [M.shadeLegend()] : []));
      columns.forEach((one) => one.redraw());
    };
    redraw();
    return {
      title: task, runs: [], still: true,
      nodes: [
        h("div", {}, h("div", { class: "small dim" }, "One task through the training"), h("h1", {}, M.text(M.few(task || "", 200)))),
        found.length ? h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Games of this task"),
          h("span", { class: "small dim" }, `step above, reward below; h: held out. Choose up to ${MOST_COLUMNS} games to read side by side.`)),
        h("div", { class: "body" }, found.map((one) => line(one.run, one.games, picked, change))))
          : h("section", { class: "panel" }, h("p", { class: "empty" }, "No run has a game of this task.")),
        toggles, h("div", { class: `columns of${columns.length}` }, columns.map((one) => one.place)),
      ],
      keys: { s: () => { kept.shade = !kept.shade; redraw(); }, Escape: () => history.back() },
    };
  };
})(window.motet);
