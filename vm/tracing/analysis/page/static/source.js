// The source of views: the document inside the page, or the server of `tensord web`.

import {byId} from "./dom.js";

const AGAIN = [500, 1000, 2000, 5000];  // milliseconds until the next attempt to connect

export function sourceOf(model, say) {
  const embedded = byId("view");
  return embedded ? new Embedded(model, embedded) : new Served(model, say);
}

class Embedded {
  asks = false;

  constructor(model, element) {
    model.add(JSON.parse(element.textContent));
    element.remove();  // frees its text, which is large
  }
}

class Served {
  #attempts = 0;
  asks = true;

  constructor(model, say) {
    Object.assign(this, {model, say});
    history.replaceState(null, "", location.pathname);  // the server has put the token of the address into a cookie
    this.#connect();
  }

  #connect() {
    const address = new URL("api/views", location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    socket.addEventListener("message", ({data}) => {
      try {
        this.#take(JSON.parse(data));
      } catch (error) {
        this.say(`a message of the server cannot be shown: ${error.message}`);
      }
    });
    socket.addEventListener("close", ({reason}) => {
      const wait = AGAIN[Math.min(this.#attempts, AGAIN.length - 1)];
      this.#attempts += 1;
      this.say(`${reason || "no connection to the server of this page"}; trying again`);
      setTimeout(() => this.#connect(), wait);
    });
  }

  #take({view, skipped, state, message}) {
    this.#attempts = 0;
    if (view) this.model.add(view, skipped);
    if (view || state === "connected") this.say("");
    else if (state) this.say(message ?? state);
  }

  async why(id) {
    return (await this.ask(`api/why/${id}`)).text;
  }

  async tensor({id, session}) {
    return (await this.ask(`api/tensor/${id}?session=${session}`)).tensor;
  }

  async advice() {
    return (await this.ask("api/advice")).advice;
  }

  async ask(path) {
    const answer = await fetch(path);
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error ?? `the server answered with status ${answer.status}`);
    return found;
  }
}
