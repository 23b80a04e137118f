// Makes elements of the page. A text of a trace always becomes a text node: nothing here parses HTML.

export function byId(id) {
  return document.getElementById(id);
}

// Make an element with attributes and children. `on`: listeners by event. A child that is not an element becomes text.
export function make(tag, {on = {}, ...attributes} = {}, ...children) {
  return fill(document.createElement(tag), attributes, on, children);
}

export function svg(tag, {on = {}, ...attributes} = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, on, children);
}

function fill(element, attributes, listeners, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  for (const [event, listener] of Object.entries(listeners)) element.addEventListener(event, listener);
  element.append(...present(children));
  return element;
}

// Replace the children of an element.
export function put(element, ...children) {
  element.replaceChildren(...present(children));
}

function present(children) {
  return children.filter(child => child !== null && child !== undefined && child !== "");
}

export function button(text, action, attributes = {}) {
  return make("button", {type: "button", on: {click: action}, ...attributes}, text);
}
