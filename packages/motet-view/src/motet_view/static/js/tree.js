"use strict";
/* One game: every Round on the chosen path, its joint actions, and what each agent wrote. */
(function (M) {
  const { h } = M;

  /* The joint actions with the highest worth, from the first Round on. */
  M.bestPath = function (tree) {
    const path = [];
    let round = tree;
    while (round) {
      let best = 0;
      round.outcomes.forEach((one, at) => {
        const now = round.outcomes[best];
        if (one.worth !== null && (now.worth === null || one.worth > now.worth)) best = at;
      });
      path.push(best);
      round = round.outcomes.length ? round.outcomes[best].next : null;
    }
    return path;
  };

  /* The Rounds on a path. A path that is too short goes on with the best joint actions. */
  M.chain = function (tree, path) {
    const rounds = [];
    let round = tree, depth = 0;
    while (round) {
      const at = depth < path.length && path[depth] < round.outcomes.length ? path[depth] : M.bestPath(round)[0];
      rounds.push({ round, at, outcome: round.outcomes[at] || null });
      round = round.outcomes[at] ? round.outcomes[at].next : null;
      depth += 1;
    }
    return rounds;
  };

  const LEVELS = [0.9, 0.5, 0.2, 0.05];
  const level = (logprob) => {
    const p = Math.exp(logprob);
    const at = LEVELS.findIndex((bound) => p >= bound);
    return at < 0 ? LEVELS.length : at;
  };
  M.shadeLegend = () => h("span", { class: "small dim shades" }, "probability of a token ",
    ["90–100 %", "50–90 %", "20–50 %", "5–20 %", "below 5 %"].map((label, at) => h("span", { class: `lp${at} lp` }, label)));

  function tokens(sample) {
    const place = h("div", { class: "said", dir: "auto" });
    sample.logprobs.forEach((logprob, at) => {
      const text = sample.pieces ? sample.pieces[at] : "▪";
      const percent = 100 * Math.exp(logprob);
      place.append(h("span", { class: `lp lp${level(logprob)}`,
        title: `${percent < 0.1 ? percent.toExponential(1) : percent.toFixed(1)} %, log-probability ${logprob.toFixed(3)}` }, text));
    });
    return sample.pieces ? place : h("div", {}, M.said(sample.text), h("p", { class: "small dim" }, "The tokenizer is not on this machine: one mark for each token."), place);
  }

  const thought = (sample) => sample.thinking && h("details", { class: "prompt" },
    h("summary", {}, `Thinking (${M.number(sample.thinking.length)} characters)`), M.said(sample.thinking));

  /* The advantages come later than the game. They are put in where they belong, and nothing is drawn
     again: what a reader has opened meanwhile stays open. */
  function showAdvantage(place, advantages) {
    const value = advantages.get(place.dataset.of);
    place.hidden = value === undefined;
    if (value === undefined) return;
    place.className = `num ${value > 1e-9 ? "good" : value < -1e-9 ? "bad" : ""}`;
    place.textContent = `advantage ${M.signed(value)}`;
  }
  M.showAdvantages = (body, advantages) => body.querySelectorAll("[data-of]").forEach((place) => showAdvantage(place, advantages));
  function advantageOf(of, advantages) {
    const place = h("span", { "data-of": of });
    showAdvantage(place, advantages);
    return place;
  }

  /* options: {advantages, of, shade, picked} */
  function sampleCard(sample, at, options) {
    const facts = [`sample ${at}`];
    if (sample.logprobs) facts.push(`${sample.logprobs.length} tokens`);
    return h("article", { class: `sample${options.picked ? " picked" : ""}` },
      h("div", { class: "facts" }, h("span", {}, facts.join(" · ")),
        options.advantages && advantageOf(options.of, options.advantages),
        sample.stop === "length" && h("span", { class: "chip warn", title: "cut off at the token limit" }, "cut off")),
      options.shade && sample.logprobs ? tokens(sample) : [thought(sample), (sample.text || !(sample.calls || []).length) && M.said(sample.text)],
      (sample.calls || []).map((call) => h("div", { class: "call" }, h("span", { class: "small dim" }, "calls "), M.said(call))),
      sample.unread && h("div", { class: "call" }, h("span", { class: "chip warn" }, "call not readable"), M.said(sample.unread)));
  }

  const key = (path, agent, at) => JSON.stringify([path, agent, at]);
  M.advantageKey = key;

  function promptOf(messages, open) {
    const size = messages.reduce((sum, one) => sum + one.text.length, 0);
    return h("details", { class: "prompt", open },
      h("summary", {}, `Prompt (${M.number(size)} characters)`),
      messages.map((one) => h("div", { class: "message" }, h("div", { class: "small dim" }, one.speaker), M.said(one.text))));
  }

  /* One button per joint action, shaded by its worth. */
  function strip(round, at, pick) {
    const worths = round.outcomes.map((one) => one.worth).filter((one) => one !== null);
    const low = Math.min(...worths), high = Math.max(...worths);
    return h("div", { class: "strip", role: "group", "aria-label": `Joint actions of turn ${round.turn + 1}` },
      round.outcomes.map((one, place) => {
        const said = one.fault ? "fault" : `worth ${M.number(one.worth)}${one.next ? ", goes on" : one.end === "pruned" ? ", pruned" : ""}`;
        const button = h("button", { type: "button", class: `act${one.fault ? " faulty" : ""}`, "aria-pressed": String(place === at),
          title: `joint action ${place}: ${said}`, "aria-label": `joint action ${place}: ${said}`, onclick: () => pick(place) },
        h("span", { class: "at" }, String(place)), h("span", { class: "small num" }, one.fault ? "fault" : M.fixed(one.worth, 2)),
        one.next && h("span", { class: "goes", "aria-hidden": "true" }, "›"));
        if (one.worth !== null && place !== at) M.heat(button, high > low ? (one.worth - low) / (high - low) : 0);
        return button;
      }));
  }

  const ENDS = { done: "the game ended", limit: "the last turn was played", stopped: "stopped by a rule", pruned: "not expanded" };

  function faultOf(fault) {
    return h("div", { class: "note bad" }, h("strong", {}, `Fault ${fault.where}/${fault.cause}: `), M.said(fault.message),
      fault.place && h("div", { class: "small" }, fault.place),
      fault.trace && h("details", {}, h("summary", {}, "Traceback"), M.said(fault.trace)));
  }
  M.faultOf = faultOf;

  function result(outcome, at) {
    if (outcome.fault) return faultOf(outcome.fault);
    const terms = Object.entries(outcome.terms);
    return h("div", { class: "result" },
      h("span", { class: "dim" }, `Joint action ${at}: reward`),
      Object.entries(outcome.rewards).map(([agent, reward]) => h("span", {}, h("span", { class: "dim" }, `${agent} `), h("b", { class: "num" }, M.number(reward)))),
      terms.length > 0 && h("span", { class: "terms" }, terms.map(([name, value]) => h("span", { class: "term" }, `${name} `, h("span", { class: "num" }, M.number(value))))),
      h("span", { class: "dim" }, outcome.once ? "played to its end once below, not trained on" : outcome.next ? "the game goes on below" : ENDS[outcome.end] || ""));
  }

  /* What the joint action would have earned had some agents given their defaults. */
  function without(round, outcome) {
    const found = round.without.filter((one) => one.worth !== null && Object.entries(one.picks).every(([agent, pick]) => outcome.picks[agent] === pick));
    return found.length > 0 && h("div", { class: "result" }, found.map((one) => h("span", {},
      h("span", { class: "dim" }, `without ${Object.keys(outcome.picks).filter((agent) => !(agent in one.picks)).join(" and ")} `), h("span", { class: "num" }, M.number(one.worth)))));
  }

  /* A Round. options: {pick, shade, all, prompts, advantages, focused, lean} */
  M.roundSection = function ({ round, at, outcome }, options) {
    const agents = Object.keys(round.samples);
    const card = (agent, place, picked) => sampleCard(round.samples[agent][place], place,
      { picked, shade: options.shade, advantages: options.advantages, of: key(round.path, agent, place) });
    const columns = agents.map((agent) => {
      const place = outcome ? outcome.picks[agent] : undefined;
      const sample = place === undefined ? null : round.samples[agent][place];
      return h("div", { class: "agent" },
        h("h3", {}, agent, sample && sample.policy !== agent && h("span", { class: "dim policy" }, ` ${sample.policy}`)),
        round.prompts[agent] && promptOf(round.prompts[agent], options.prompts),
        sample ? card(agent, place, true)
          : h("p", { class: "dim" }, "No completion in this joint action."));
    });
    const most = Math.max(0, ...agents.map((agent) => round.samples[agent].length));
    const everything = () => h("div", { class: "agents all" }, agents.map((agent) => h("div", { class: "agent" },
      round.samples[agent].map((_, place) => card(agent, place, outcome && outcome.picks[agent] === place)))));
    return h("section", { class: `panel round${options.focused ? " focused" : ""}` },
      h("header", {}, h("h2", {}, `Turn ${round.turn + 1}`),
        h("span", { class: "small dim" }, `${round.outcomes.length} joint action${round.outcomes.length === 1 ? "" : "s"}`)),
      h("div", { class: "body" },
        round.outcomes.length > 1 && strip(round, at, options.pick),
        outcome && result(outcome, at), outcome && !outcome.fault && without(round, outcome),
        h("div", { class: "agents" }, columns),
        !options.lean && most > 1 && h("details", { class: "others", open: options.all, ontoggle: (event) => {
          const inside = event.target;
          if (inside.open && inside.childElementCount === 1) inside.append(everything());
        } }, h("summary", {}, `All ${most} samples of each agent`))));
  };
})(window.motet);
