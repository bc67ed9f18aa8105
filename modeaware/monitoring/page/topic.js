// One topic: a card while it changes, else a line.
const SMALL_FROM = 97;
const LETTERS = { rw: "W", ro: "R", opening: "O", none: "N" };
const PHASES = ["done", "reclaim", "drain", "seal", "opening"];
const MOST_RANGES = 12;
const CALM_GROUPS = 8; // if there are more, groups with nothing left to read are only counted
const SVG = "http://www.w3.org/2000/svg";
const STEPS = ["create", "announce", "seal", "drain", "reclaim", "done"];
const COLUMNS = [["Group", "name"], ["Left to read", "left"], ["Over time", "over"], ["Left at its pace", "pace"], ["State", "state"]];
const DOES = {
  seal: "Waiting until no more records arrive in the retired partitions",
  drain: "Draining: groups read the retired partitions to their seals",
  reclaim: "Reclaiming: records are being deleted",
  opening: "Opening new partitions",
  done: "Done",
};
const DOES_REPLACED = {
  create: "The new topic is being created. Producers write to the old topic.",
  announce: "The new topic is announced to clients. Producers write to the old topic until the switch.",
  seal: "Producers write to the new topic. The partitions of the old topic are being sealed.",
  drain: "Groups read the old topic to its seals. Then the gate opens, and they read the new topic.",
  reclaim: "Every required group has moved to the new topic. The old topic is released, and will be deleted.",
  gap: "The old topic is deleted. The controller replaces the interim topic by a new topic with the kept name.",
};

// A name may contain any character. Unprintable ones are shown as escapes, as in modeaware.printable.
export function shown(text) {
  return String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

// As in modeaware.printable.number.
const number = (value) => value.toLocaleString("en").replaceAll(",", " ");

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

export function lasting(s) {
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
  let x = 0;
  const rects = PHASES.filter((phase) => topic.phases[phase]).map((phase) => {
    x += topic.phases[phase];
    return ["rect", { x: x - topic.phases[phase], y: 0, width: topic.phases[phase], height: 1, class: `part-${phase}` }];
  });
  const bar = drawing(Math.max(total, 1), 1, { "aria-hidden": "true" }, rects);
  const parts = PHASES.filter((phase) => topic.phases[phase]).map((phase) => `${phase} ${topic.phases[phase]}`);
  return [
    element("div", { class: "bar" }, [bar]),
    element("p", { class: "soft", text: `${topic.phases.done ?? 0} of ${total} partitions done: ${parts.join(", ")}` }),
  ];
}

// Lets a command break only between words.
function command(text) {
  return element("code", {}, text.split(" ").flatMap((word, n) => [...(n ? [" "] : []), element("span", { text: word })]));
}

function blocked(one) {
  const waits = one.as_asked; // the wait follows from the request
  const many = one.count === 1 ? "Partition" : "Partitions";
  const what = one.count ? `${many} ${ranges(one.partitions)}` : "The replacement";
  return element("div", { class: waits ? "blocked waits" : "blocked" }, [
    element("strong", {}, [
      `${what} ${waits ? "wait" : "blocked"}${waits && one.count < 2 ? "s" : ""} (${one.code}) for `,
      ago(one.since_ms),
    ]),
    element("p", { text: one.text }),
    ...(one.next === null ? [] : [element("p", {}, ["Next, with your connection options: ", command(one.next)])]),
  ]);
}

function state(group) {
  if (group.waived && !group.unread) return "waived";
  if (group.kind === null) return "not listed by the brokers";
  if (group.moved && group.gate_open !== false) return "moved to the new topic";
  const members = group.running ? "running" : "no members";
  return [...(group.evacuation ? ["evacuation"] : []), ...(group.gate_open ? ["gate open"] : []), members].join(", ");
}

function pace(group) {
  if (!group.unread) return "-";
  if (group.read_per_s === null) return "not known yet";
  if (group.left_s === null) return "not falling";
  return `about ${lasting(group.left_s)}`;
}

function drawing(width, height, kind, parts) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", ...kind })) svg.setAttribute(key, value);
  for (const [name, attributes] of parts) {
    const part = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    svg.append(part);
  }
  return svg;
}

// A group's unread records at each point of the topic's history, and now.
function curve(group, topic) {
  const points = topic.history_ms.map((ms, n) => [ms, group.history[n]]).filter(([, left]) => left !== null);
  if (topic.checked_ms !== null) points.push([topic.checked_ms, group.unread]);
  const most = Math.max(...points.map(([, left]) => left));
  if (points.length < 3 || most === 0) return "-";
  const from = points[0][0];
  const span = points.at(-1)[0] - from || 1;
  const path = points.map(([ms, left]) => `${(100 * (ms - from)) / span},${1 + 22 * (1 - left / most)}`);
  const label = `${number(points[0][1])} left ${lasting(Math.round(span / 1000))} before, ${number(group.unread)} at the last check`;
  return drawing(100, 24, { class: "curve", role: "img", "aria-label": label }, [
    ["polygon", { points: `0,24 ${path.join(" ")} 100,24` }],
    ["polyline", { points: path.join(" ") }],
  ]);
}

function left(topic) {
  if (topic.left === null) return [];
  const { unread, at_first: first, left_s: s } = topic.left;
  const read = first - unread;
  const bar = drawing(first, 1, { "aria-hidden": "true" }, [["rect", { x: 0, y: 0, width: read, height: 1, class: "part-done" }]]);
  const time = s === null ? "remaining time not known" : `about ${lasting(s)} at this pace`;
  const text = `${number(read)} of ${number(first)} records read by the group with the most to read, ${number(unread)} left, ${time}`;
  return [element("div", { class: "bar records" }, [bar]), element("p", { class: "soft", text })];
}

function stepper(topic) {
  const at = STEPS.indexOf(topic.phase);
  const steps = STEPS.map((step, n) => {
    const state = n < at || topic.phase === "done" || topic.phase === "gap" ? "past" : n === at ? "current" : "next";
    return element("li", { class: state, ...(n === at ? { "aria-current": "step" } : {}), text: step });
  });
  return element("ol", { class: "steps", "aria-label": "Steps of the replacement" }, steps);
}

function newTopicState(topic) {
  const by = topic.replacement;
  if (by.undone_ms !== null) return "is being deleted: the replacement is undone";
  if (by.new_topic_id === null) return "is not created yet";
  if (by.switched_ms === null) return "is not written yet";
  if (topic.groups_waiting === null) return "takes writes";
  if (topic.groups_waiting === 0) return "takes writes; its gate is open";
  return `takes writes; its gate is closed to ${topic.groups_waiting} group${topic.groups_waiting === 1 ? "" : "s"}`;
}

function oldTopicState(by) {
  if (by.switched_ms === null) return "takes writes";
  const fence = by.fenced_ms !== null ? "fenced: brokers refuse data" : by.fence === "none" ? "without a fence" : "not fenced now";
  return by.released_ms === null ? `takes no writes (${fence})` : "released: no required group needs it";
}

function pair(topic) {
  const by = topic.replacement;
  const kind = by.switched_ms === null || by.undone_ms !== null ? "none" : "rw";
  const mode = kind === "rw" ? "ReadWrite" : "not written";
  const count = by.num_partitions;
  const many = count < SMALL_FROM ? "cells" : "cells many";
  const boxes = Array.from({ length: count }, (_, n) => element("span", { class: `cell ${kind}`, title: `${n}: ${mode}`, text: LETTERS[kind] }));
  const side = (role, name, size, state, content) =>
    element("div", { class: "side" }, [
      element("p", { class: "soft", text: role }),
      element("h4", { text: name }),
      element("p", { class: "soft", text: `${size} partition${size === 1 ? "" : "s"}, ${state}` }),
      ...content,
    ]);
  return element("div", { class: "pair" }, [
    side("Old topic", topic.topic, topic.count, oldTopicState(by), [cells(topic)[0]]),
    element("span", { class: "arrow", "aria-hidden": "true", text: "→" }),
    side("New topic", by.new_topic, count, newTopicState(topic), [element("div", { class: many, role: "img", "aria-label": `${count} partitions, ${mode}` }, boxes)]),
  ]);
}

// A time of day, with the date if that is not today.
function clock(ms) {
  const at = new Date(ms);
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.toLocaleDateString("en-CA")} `;
  return day + at.toLocaleTimeString("en-GB");
}

function events(topic) {
  if (!topic.events.length) return [];
  const items = topic.events.toReversed().map((one) => element("li", {}, [
    element("time", { datetime: new Date(one.at_ms).toISOString(), text: clock(one.at_ms) }), ` ${one.what} `,
    element("span", { class: "soft" }, [ago(one.at_ms), " ago"]),
  ]));
  return [element("h4", { text: "Events" }), element("ol", { class: "events", "aria-label": `Events of ${topic.topic}` }, items)];
}

function groups(topic) {
  if (!topic.groups.length) return [];
  const busy = topic.groups.filter((group) => group.text !== null || group.waived);
  const listed = topic.groups_count <= CALM_GROUPS ? topic.groups : busy;
  const rows = listed.map((group) => {
    const contents = [group.group, group.text ?? "-", curve(group, topic), pace(group), state(group)];
    return element("tr", {}, contents.map((content, n) => {
      const [label, kind] = COLUMNS[n];
      const cell = { class: content === "-" ? `${kind} empty` : kind, "data-label": label };
      return typeof content === "string" ? element("td", { ...cell, text: content }) : element("td", cell, [content]);
    }));
  });
  const table = element("table", {}, [
    element("thead", {}, [element("tr", {}, COLUMNS.map(([text]) => element("th", { text, scope: "col" })))]),
    element("tbody", {}, rows),
  ]);
  const found = !rows.length ? [] : [element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Groups of ${topic.topic}` }, [table])];
  const left = topic.groups_count - listed.length;
  const less = busy.length < topic.groups.length ? "nothing left to read" : "less to read";
  if (left > 0) found.push(element("p", { class: "soft", text: `${rows.length ? "and " : ""}${left} groups with ${less}` }));
  return found;
}

function checked(topic) {
  if (topic.checked_ms === null) return element("p", { class: "soft", text: "Not checked yet." });
  const more = topic.groups_doubt === null ? "." : `; there may be more groups: ${topic.groups_doubt}`;
  const parts = ["Checked ", ago(topic.checked_ms, { "data-checked": "" }), " ago"];
  if (topic.due_ms !== null) parts.push("; the next check is due in ", element("span", { "data-until": topic.due_ms, "data-due": "" }));
  return element("p", { class: "soft" }, [...parts, more]);
}

function does(topic) {
  const waits = topic.phase === "drain" && topic.blocked.length && topic.blocked.every((one) => one.as_asked);
  if (waits) return "Waiting, as requested";
  const by = topic.replacement;
  if (by === null) return DOES[topic.phase] ?? topic.phase;
  return by.undone_ms === null ? DOES_REPLACED[topic.phase] : "Undoing the replacement: the new topic is being deleted.";
}

// A change that keeps a name is one change with two replacements: its card has the kept name in both halves.
function keeps(topic) {
  return topic.kept_name !== null && topic.kept_name.keeps && topic.kept_name.phase !== "done";
}

function switches(topic) {
  if (!keeps(topic)) return [];
  const kept = topic.kept_name;
  const times = [["first switch", kept.first_switched_ms], ["old topic deleted", kept.first_gone_ms], ["second switch", kept.second_switched_ms]];
  const past = times.filter(([, ms]) => ms !== null).map(([what, ms]) => `${what} ${clock(ms)}`);
  return [element("p", { class: "soft", text: `Half ${kept.half} of 2${past.length ? `: ${past.join(", ")}` : ""}` })];
}

export function card(topic) {
  const policy = topic.policy === null ? "" : `, policy ${topic.policy}`;
  const node = element("article", { class: "card", "data-topic": topic.topic, "data-phase": topic.phase }, [
    element("div", { class: "head" }, [
      element("h3", { text: keeps(topic) ? topic.kept_name.name : topic.topic }),
      element("span", { class: "soft", text: `${topic.change}${topic.replacement === null ? `, ${topic.writable} of ${topic.count} writable` : ""}, epoch ${topic.epoch}${policy}` }),
    ]),
    element("p", { text: does(topic) }),
    ...switches(topic),
    ...(topic.replacement === null ? cells(topic) : [stepper(topic), pair(topic)]),
    ...(topic.replacement === null || topic.phase === "seal" ? progress(topic) : []),
    ...left(topic),
  ]);
  if (topic.trouble !== null) node.append(element("p", { class: "trouble", text: `The last attempt failed: ${topic.trouble}` }));
  node.append(...topic.blocked.map(blocked), ...groups(topic), ...events(topic), checked(topic));
  if (topic.fences_lifted) node.append(element("p", { class: "trouble", text: `The fence was lifted ${topic.fences_lifted} times: another client set the topic's configs. The controller restores the fence, and drains what was written meanwhile.` }));
  if (topic.stragglers) node.append(element("p", { class: "trouble", text: `Seals broken by late records: ${topic.stragglers}. Some producer does not honour modes; the controller's log shows these records. Nothing is lost.` }));
  return node;
}

// The sort key of a topic: first failed attempts, then the topics that are blocked for the longest time.
export function urgency(topic) {
  if (topic.trouble !== null) return 0;
  return Math.min(Infinity, ...topic.blocked.filter((one) => !one.as_asked).map((one) => one.since_ms));
}

// A topic that was replaced and deleted has no partitions: its name is an alias, which points to the new topic.
function describes(topic) {
  const by = topic.replacement;
  if (by === null) return [`${topic.writable} of ${topic.count} writable, epoch ${topic.epoch}, changed `, ago(topic.changed_ms), " ago"];
  if (topic.alias) return [`alias; the old topic (${topic.count} partitions) was ${by.deleting_ms === null ? "found gone" : "deleted"} `, ago(by.gone_ms), " ago"];
  return [`replaced by ${by.new_topic} (${by.num_partitions} partitions), released `, ago(by.released_ms ?? topic.changed_ms), " ago, and not deleted (--fence none)"];
}

export function line(topic, picture) {
  const node = element("div", { class: topic.alias ? "row alias" : "row", "data-topic": topic.topic, "data-phase": topic.phase }, [
    element("b", topic.alias ? {} : { text: topic.topic }, topic.alias ? [element("s", { text: topic.topic }), element("span", { text: ` → ${topic.replacement.new_topic}` })] : []),
    element("span", { class: "soft" }, describes(topic)),
  ]);
  if (picture && !topic.alias) node.append(cells(topic, "cells many")[0]);
  if (topic.trouble !== null) node.append(element("p", { class: "trouble", text: `The last attempt failed: ${topic.trouble}` }));
  return node;
}
