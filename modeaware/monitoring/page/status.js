// Requests /status.json every two seconds and shows it. All text is set through textContent, so that the name of a topic
// or a group cannot become markup.
import { card, element, lasting, line, urgency } from "./topic.js";

const PERIOD_MS = 2000;
const PATIENCE_MS = 8000;
const MOST_DONE = 500;
const MOST_PICTURES = 50;
const shown = new Map();
let lastMs = null; // time of the last response, by performance.now(): the clocks of two machines may differ
let offsetMs = 0; // the controller's clock minus this browser's clock

const at = (id) => document.getElementById(id);

function duration(node) {
  const nowMs = Date.now() + offsetMs;
  const ms = node.dataset.until === undefined ? nowMs - Number(node.dataset.since) : Number(node.dataset.until) - nowMs;
  return lasting(Math.max(0, Math.round(ms / 1000)));
}

function setState(word, kind, more = "") {
  // The seconds are outside the status element, because a screen reader would announce each of them.
  if (at("state").textContent !== word) at("state").textContent = word;
  at("age").textContent = more;
  at("live").className = `pill ${kind}`;
}

function controllers(status) {
  const own = status.controller;
  const claim = status.claim;
  const rows = [["This controller", own.id], ["It is", own.role + (own.epoch === null ? "" : `, epoch ${own.epoch}`)]];
  if (own.role === "active") {
    rows.push(["Endpoint", own.endpoint ?? "none"]);
  } else if (claim) {
    rows.push(["Last claim", `${claim.id}${claim.host ? ` on ${claim.host}` : ""}, epoch ${claim.epoch}`]);
    rows.push(["Its endpoint", claim.endpoint ?? "none: it has stopped, or takes no commands"]);
  } else {
    rows.push(["Last claim", "none yet"]);
  }
  const failed = Object.entries(own.errors).filter(([, count]) => count);
  if (failed.length) rows.push(["Errors so far", failed.map(([name, count]) => `${name} ${count}`).join(", ")]);
  const box = element("div", { class: "card" }, [
    element("dl", {}, rows.map(([name, value]) => element("div", {}, [element("dt", { text: name }), element("dd", { text: value })]))),
  ]);
  if (own.not_ready) box.append(element("p", { class: "trouble", text: `Not ready: ${own.not_ready}` }));
  if (own.role !== "active") {
    const where = claim ? `that of ${claim.id}${claim.host ? ` on ${claim.host}` : ""}` : "not known yet";
    const page = claim?.page ? element("a", { href: claim.page, text: where }) : where;
    box.append(element("p", { class: "soft" }, ["Topics are on the active controller's page: ", page, "."]));
  }
  return box;
}

function keep(id, wanted) {
  // Rebuild only changed nodes, so that a selection or a scrolled table stays.
  const parent = at(id);
  const nodes = wanted.map(([key, data, build]) => {
    const moves = ["checked_ms", "due_ms"]; // they change with each check
    const text = JSON.stringify(data, (name, value) => (moves.includes(name) ? value !== null : value));
    const known = shown.get(key);
    if (known && known.text === text) {
      known.node.querySelector("[data-checked]")?.setAttribute("data-since", data.checked_ms);
      known.node.querySelector("[data-due]")?.setAttribute("data-until", data.due_ms);
      return known.node;
    }
    const node = build(data);
    shown.set(key, { text, node });
    return node;
  });
  if (nodes.length !== parent.childNodes.length || nodes.some((node, place) => node !== parent.childNodes[place])) {
    parent.replaceChildren(...nodes);
  }
}

function show(status) {
  offsetMs = status.taken_ms - Date.now();
  keep("controllers", [["controllers", { controller: status.controller, claim: status.claim }, controllers]]);
  at("topics").hidden = status.controller.role !== "active";
  const changing = status.topics.filter((topic) => topic.phase !== "done").sort((a, b) => (urgency(a) < urgency(b) ? -1 : urgency(a) > urgency(b) ? 1 : 0));
  const done = status.topics.filter((topic) => topic.phase === "done");
  keep("changing", changing.map((topic) => [`changing ${topic.topic_id}`, topic, card]));
  keep("done", done.slice(0, MOST_DONE).map((topic) => [`done ${topic.topic_id}`, topic, (one) => line(one, done.length <= MOST_PICTURES)]));
  const there = new Set(["controllers", ...changing.map((t) => `changing ${t.topic_id}`), ...done.map((t) => `done ${t.topic_id}`)]);
  for (const key of shown.keys()) if (!there.has(key)) shown.delete(key);
  at("changing-n").textContent = changing.length ? changing.length : "nothing";
  at("done-n").textContent = done.length
    ? done.length + (done.length > MOST_DONE ? `, ${MOST_DONE} shown` : "")
    : status.topics.length ? "nothing" : "nothing: no topic of this cluster has been changed yet";
}

function tick() {
  for (const node of document.querySelectorAll("[data-since], [data-until]")) {
    const text = duration(node);
    if (node.textContent !== text) node.textContent = text;
  }
  const age = lastMs === null ? null : performance.now() - lastMs;
  const stale = age === null || age > 3 * PERIOD_MS;
  document.body.classList.toggle("stale", age !== null && stale);
  if (age === null) return;
  setState(stale ? "stale" : "live", stale ? "bad" : "good", stale ? `: no response for ${Math.round(age / 1000)} s` : "");
}

async function refresh() {
  try {
    const response = await fetch("/status.json", { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    show(await response.json());
    lastMs = performance.now();
  } catch (error) {
    if (lastMs === null) setState(`no response: ${error.message}`, "bad");
  }
  tick();
  setTimeout(refresh, PERIOD_MS);
}

refresh();
setInterval(tick, 1000);
