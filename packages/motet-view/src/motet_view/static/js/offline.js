"use strict";
/* The answers of an export: scripts that call motetData, and the filters of the server. */
(function (M) {
  const loaded = new Map();
  const waiting = new Map();

  window.motetData = function (name, json) {
    waiting.get(name)?.resolve(JSON.parse(json));
  };

  function load(name) {
    if (!loaded.has(name)) {
      loaded.set(name, new Promise((resolve, reject) => {
        waiting.set(name, { resolve });
        const script = document.createElement("script");
        script.src = `data/${encodeURIComponent(name)}.js`;
        script.addEventListener("error", () => reject(new Error(`data/${name}.js is not in this export`)));
        document.head.append(script);
      }));
    }
    return loaded.get(name);
  }

  function words(text) {
    return (text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || []);
  }

  function says(row, agent, text) {
    const wanted = words(text);
    if (!wanted.length) return text.trim() === "";
    const parts = agent ? [row.written[agent] || ""] : [row.excerpt, ...Object.values(row.written)];
    const low = parts.map((part) => part.toLowerCase());
    return wanted.every((word) => low.some((part) => part.includes(word)));
  }

  function matches(row, query) {
    const has = (name) => query.has(name);
    const agent = query.get("agent");
    const shown = agent ? row.agent_rewards[agent] : row.reward;
    const faults = query.get("fault");
    return (!has("kind") || row.kind === query.get("kind"))
      && (!has("first_step") || row.step >= Number(query.get("first_step")))
      && (!has("last_step") || row.step <= Number(query.get("last_step")))
      && (!has("success") || (row.success === 1) === (query.get("success") === "true"))
      && (!has("lowest") || (typeof shown === "number" && shown >= Number(query.get("lowest"))))
      && (!has("highest") || (typeof shown === "number" && shown <= Number(query.get("highest"))))
      && (!has("cut") || (row.cut > 0) === (query.get("cut") === "true"))
      && (!has("task") || row.task === query.get("task"))
      && (!agent || agent in row.agent_rewards || agent in row.written)
      && (faults === null || (faults === "any" ? row.faults > 0
        : faults === "none" ? row.faults === 0 : row.causes.split(" ").includes(faults)))
      && (!has("text") || says(row, agent, query.get("text")));
  }

  const ORDERS = {
    newest: (a, b) => b.step - a.step || b.id - a.id,
    oldest: (a, b) => a.step - b.step || a.id - b.id,
    best: (a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity) || a.id - b.id,
    worst: (a, b) => (a.reward ?? Infinity) - (b.reward ?? Infinity) || a.id - b.id,
    longest: (a, b) => b.tokens - a.tokens || a.id - b.id,
  };

  function listed(all, query) {
    const agent = query.get("agent");
    const rows = all.games.filter((row) => matches(row, query))
      .map((row) => agent ? { ...row, reward: row.agent_rewards[agent] ?? null } : row)
      .sort(ORDERS[query.get("order") || "newest"]);
    const start = Number(query.get("start") || 0);
    const games = rows.slice(start, start + Number(query.get("count") || 50));
    return { total: rows.length, start, games, choices: all.choices };
  }

  M.offline = async function (path, query) {
    const runs = window.motetExport;
    if (path === "runs") return runs;
    const number = runs.runs.findIndex((run) => run.name === query.get("run"));
    if (path === "configs") {
      const all = await load("configs");
      const chosen = query.getAll("run").map((name) => all.runs.indexOf(name));
      const rows = all.rows.map((row) => ({ key: row.key, values: chosen.map((at) => row.values[at]) }))
        .filter((row) => new Set(row.values.map((value) => JSON.stringify(value))).size > 1);
      return { runs: query.getAll("run"), rows };
    }
    if (path === "overview" || path === "team") return load(`${path}-${number}`);
    if (path === "curves") {
      const all = new Map(Object.entries(await load(`curves-${number}`)));
      const none = { steps: [], values: [], mean_of: 1 };
      return Object.fromEntries(query.getAll("metric").map((name) => [name, all.get(name) || none]));
    }
    if (path === "game") return load(`game-${number}-${query.get("id")}`);
    if (path === "advantages") return (await load(`game-${number}-${query.get("id")}`)).credit;
    const all = await load(`games-${number}`);
    if (path === "games") return listed(all, query);
    const games = all.games.filter((row) => row.task === query.get("task"));
    return { run: query.get("run"), task: query.get("task"), games };
  };
})(window.motet);
