// Elements from values. Whatever comes from elsewhere becomes text here and can become nothing else: there is no
// way in this module to make markup of a string.
//
// `keyed` is the one idea: a list on the page follows a list of values, and an element stays the same element for
// as long as its value is there. So focus, selection and scroll position survive an update, and an update costs
// what has changed.

const SVG = "http://www.w3.org/2000/svg";

/** h("p.hint", {title: "x"}, "text", child): an element with classes, attributes and children. */
export function h(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) put(element, name, value);
  element.append(...children);
  return element;
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) put(element, name, value);
  element.append(...children);
  return element;
}

/** Set an attribute if it differs; null, undefined and false remove it. */
export function put(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else {
    const wanted = value === true ? "" : String(value);
    if (element.getAttribute(name) !== wanted) element.setAttribute(name, wanted);
  }
}

/** Set the text if it differs. */
export function say(element, text) {
  const wanted = String(text ?? "");
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

const kept = new WeakMap();

/**
 * Make the children of `parent` follow `items`. `make(item)` builds an element, `update(element, item)` fills it.
 * If the focus was inside an element that goes away, it moves to the nearest that stays, or to `parent`'s region.
 */
export function keyed(parent, items, { key, make, update }) {
  const before = kept.get(parent) ?? new Map();
  const after = new Map();
  for (const item of items) {
    const id = key(item);
    if (after.has(id)) continue;
    const element = before.get(id) ?? make(item);
    before.delete(id);
    update(element, item);
    after.set(id, element);
  }
  for (const element of before.values()) leave(element);
  const focused = document.activeElement;
  let place = parent.firstChild;
  for (const element of after.values()) {
    if (element === place) place = place.nextSibling;
    else parent.insertBefore(element, place);
  }
  // An element that is moved loses the focus.
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
  kept.set(parent, after);
}

function leave(element) {
  if (element.contains(document.activeElement)) {
    const near = element.nextElementSibling ?? element.previousElementSibling;
    const next = near?.querySelector("button, a") ?? element.closest("section, aside")?.querySelector("[tabindex]");
    element.remove();
    next?.focus({ preventScroll: true });
  } else {
    element.remove();
  }
}
