// One topic: a card while it changes, a line while it does not.
const SMALL_FROM = 97;
const LETTERS = { rw: "W", ro: "R", opening: "O", none: "N" };
const PHASES = ["done", "reclaim", "drain", "seal", "opening"];
const MOST_RANGES = 12;
const CALM_GROUPS = 8; // more than that, and those with nothing left to read are folded away
const SVG = "http://www.w3.org/2000/svg";
const DOES = {
  create: "Creating the topic that replaces it",
  announce: "Clients learn of the topic that replaces it",
  seal: "Waiting until writers have left the partitions that retire",
  drain: "Draining: groups read what is left",
  reclaim: "Reclaiming: records go",
  opening: "Opening new partitions",
  done: "Done",
};
const number = new Intl.NumberFormat("en");

// A name may hold any character: what is not printable shows as its escape, as modeaware.printable does it.
export function shown(text) {
  return String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

export function element(name, { text, ...attributes } = {}, children = []) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, shown(value));
  if (text !== undefined) node.textContent = shown(text);
  node.append(...children);
  return node;
}

const ago = (ms, more = {}) => element("span", { "data-since": ms, ...more });

function ranges(all) {
  const each = all.split(",");
  const more = each.length - MOST_RANGES;
  return each.slice(0, MOST_RANGES).join(", ") + (more > 0 ? ` and ${more} more ranges` : "");
}

function lasting(s) {
  if (s < 90) return `${s} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

function cells(topic, look = topic.count < SMALL_FROM ? "cells" : "cells many") {
  const more = new Map(topic.partitions.map((one) => [one.partition, one]));
  const modes = topic.modes.map(([first, last, mode]) => `${first === last ? first : `${first} to ${last}`} ${mode}`);
  const box = element("div", {
    class: look,
    role: "img",
    "aria-label": `Partitions: ${modes.join(", ")}`,
  });
  for (const [first, last, mode] of topic.modes) {
    for (let partition = first; partition <= last; partition += 1) {
      const own = more.get(partition);
      const opening = own?.phase === "opening";
      const kind = opening ? "opening" : { ReadWrite: "rw", ReadOnly: "ro" }[mode] ?? "none";
      let title = `${partition}: ${opening ? "opening" : mode}`;
      if (own) title += `, ${own.phase}, ${own.replica_state}`;
      if (own && own.seal_offset !== null) title += `, seal ${own.seal_offset}`;
      if (own && own.log_start !== null) title += `, offsets ${own.log_start} to ${own.log_end}`;
      box.append(element("span", { class: `cell ${kind}`, title, text: LETTERS[kind] }));
    }
  }
  const words = element("p", { class: "soft", text: modes.join(" · ") });
  return [box, words];
}

function progress(topic) {
  const total = topic.partitions.length;
  const bar = document.createElementNS(SVG, "svg");
  bar.setAttribute("viewBox", `0 0 ${Math.max(total, 1)} 1`);
  bar.setAttribute("preserveAspectRatio", "none");
  bar.setAttribute("aria-hidden", "true");
  let x = 0;
  for (const phase of PHASES) {
    const count = topic.phases[phase] ?? 0;
    if (!count) continue;
    const part = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries({ x, y: 0, width: count, height: 1, class: `part-${phase}` })) {
      part.setAttribute(name, value);
    }
    bar.append(part);
    x += count;
  }
  const parts = PHASES.filter((phase) => topic.phases[phase]).map((phase) => `${phase} ${topic.phases[phase]}`);
  return [
    element("div", { class: "bar" }, [bar]),
    element("p", { class: "soft", text: `${topic.phases.done ?? 0} of ${total} partitions done: ${parts.join(", ")}` }),
  ];
}

function blocked(one) {
  const waits = one.as_asked; // nothing is wrong then
  const many = one.count === 1 ? "Partition" : "Partitions";
  const what = one.count ? `${many} ${ranges(one.partitions)}` : "The replacement";
  return element("div", { class: waits ? "blocked waits" : "blocked" }, [
    element("strong", {}, [
      `${what} ${waits ? "wait" : "blocked"}${waits && one.count < 2 ? "s" : ""} (${one.code}) for `,
      ago(one.since_ms),
    ]),
    element("p", { text: one.text }),
  ]);
}

function state(group) {
  if (group.waived && !group.unread) return "waived";
  if (group.kind === null) return "not listed by the brokers";
  if (group.moved) return "has come to the successor";
  if (group.gate) return `not let through: ${group.gate}`;
  return (group.evacuation ? "evacuation, " : "") + (group.running ? "running" : "no members");
}

function pace(group) {
  if (!group.unread) return "-";
  if (group.read_per_s === null) return "not known yet";
  if (group.left_s === null) return "does not shrink";
  return `about ${lasting(group.left_s)}`;
}

function groups(topic) {
  if (!topic.groups.length) return [];
  const busy = topic.groups.filter((group) => group.unread || group.waived);
  const listed = topic.groups_count <= CALM_GROUPS ? topic.groups : busy;
  const head = [["Group", ""], ["Still to read", "n"], ["Left at its pace", ""], ["In partitions", ""], ["State", ""]];
  const rows = listed.map((group) =>
    element("tr", {}, [
      element("td", { class: "name", text: group.group }),
      element("td", { class: "n", text: number.format(group.unread) }),
      element("td", { class: "pace", text: pace(group) }),
      element("td", { class: "ranges", text: ranges(group.partitions) }),
      element("td", { text: state(group) }),
    ]),
  );
  const table = element("table", {}, [
    element("thead", {}, [element("tr", {}, head.map(([text, kind]) => element("th", { text, class: kind, scope: "col" })))]),
    element("tbody", {}, rows),
  ]);
  const found = !rows.length ? [] : [element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Groups of ${topic.topic}` }, [table])];
  const left = topic.groups_count - listed.length;
  const less = busy.length < topic.groups.length ? "nothing left to read" : "less to read";
  if (left > 0) found.push(element("p", { class: "soft", text: `${rows.length ? "and " : ""}${left} groups with ${less}` }));
  return found;
}

function replaced(topic) {
  const by = topic.replacement;
  if (by === null) return [];
  const name = `${by.successor} (${by.num_partitions} partitions)`;
  if (by.switched_ms === null) return [element("p", { text: `To be replaced by ${name}. Producers still write here.` })];
  const fence = by.fenced_ms === null ? "" : "Brokers refuse data for this topic. ";
  const parts = [`Producers have written to ${name} for `, ago(by.switched_ms), `. ${fence}`];
  if (by.let_go_ms === null) parts.push("Groups read this topic to its end, then the successor.");
  return [element("p", {}, parts)];
}

function looked(topic) {
  if (topic.looked_ms === null) return element("p", { class: "soft", text: "Not looked at yet." });
  const more = topic.groups_doubt === null ? "." : `; there may be more groups: ${topic.groups_doubt}`;
  const parts = ["Looked at ", ago(topic.looked_ms, { "data-looked": "" }), " ago"];
  if (topic.due_ms !== null) parts.push(", the next look is due in ", element("span", { "data-until": topic.due_ms, "data-due": "" }));
  return element("p", { class: "soft" }, [...parts, more]);
}

function does(topic) {
  const waits = topic.phase === "drain" && topic.blocked.length && topic.blocked.every((one) => one.as_asked);
  return waits ? "Waiting, as it was asked to" : DOES[topic.phase] ?? topic.phase;
}

export function card(topic) {
  const policy = topic.policy === null ? "" : `, policy ${topic.policy}`;
  const node = element("article", { class: "card", "data-topic": topic.topic, "data-phase": topic.phase }, [
    element("div", { class: "head" }, [
      element("h3", { text: topic.topic }),
      element("span", { class: "soft", text: `${topic.writable} of ${topic.count} writable, epoch ${topic.epoch}${policy}` }),
    ]),
    element("p", { text: does(topic) }),
    ...replaced(topic),
    ...cells(topic),
    ...progress(topic),
  ]);
  if (topic.trouble !== null) node.append(element("p", { class: "trouble", text: `The last look failed: ${topic.trouble}` }));
  node.append(...topic.blocked.map(blocked), ...groups(topic), looked(topic));
  if (topic.fences_lifted) node.append(element("p", { class: "trouble", text: `The fence was lifted ${topic.fences_lifted} times, by someone who set the topic's configs. It was restored, and what was written meanwhile is drained.` }));
  if (topic.stragglers) node.append(element("p", { class: "trouble", text: `Seals broken by late records: ${topic.stragglers}. Some producer does not honour modes; the controller's log says what came. Nothing is lost.` }));
  return node;
}

// What needs attention first: blocked the longest, then what waits as requested.
export function urgency(topic) {
  if (topic.trouble !== null) return 0;
  return Math.min(Infinity, ...topic.blocked.filter((one) => !one.as_asked).map((one) => one.since_ms));
}

export function line(topic, picture) {
  const node = element("div", { class: "row", "data-topic": topic.topic, "data-phase": topic.phase }, [
    element("b", { text: topic.topic }),
    element("span", { class: "soft" }, [`${topic.replacement ? `replaced by ${topic.replacement.successor}` : `${topic.writable} of ${topic.count} writable`}, epoch ${topic.epoch}, changed `, ago(topic.changed_ms), " ago"]),
  ]);
  if (picture) node.append(cells(topic, "cells many")[0]);
  if (topic.trouble !== null) node.append(element("p", { class: "trouble", text: `The last look failed: ${topic.trouble}` }));
  return node;
}
