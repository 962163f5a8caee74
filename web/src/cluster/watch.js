// watch.js: asks the server every second how the cluster is, while somebody looks at it, and has it changed.
import { send } from "../api.js";
import { clusterOf, newsOf, withRates } from "./data.js";

const PERIOD_MS = 1000;
const DEADLINE_MS = 10000;
const KEPT = 60; // samples of each model's tokens a second
const RATE_S = 2.5; // what a link carries is a mean of so long

export class ClusterWatch {
  cluster = null; // as clusterOf() makes it, once the server has told; null where it does not
  trouble = ""; // why what is there is older
  at = 0; // when it was told, by performance.now()
  history = new Map(); // model's name -> [tokens a second], the newest last
  news = []; // events that came since the poll before
  #samples = [];
  #timer = null;
  #denied = false;
  #shown = false;
  #asking = null; // the poll under way

  /* key() gives the API key or "", token() that of who may change the cluster, or "", which keepToken() keeps; changed() follows every poll; denied() is told that a key is needed. */
  constructor({ key, token, keepToken, changed, denied }) {
    Object.assign(this, { key, token, keepToken, changed, denied });
  }

  /* Asks now, with a new key if there is one, and goes on while it is shown. */
  async start() {
    this.#denied = false;
    await this.#poll();
  }

  show(shown) {
    if (shown && !this.#shown) this.#poll();
    this.#shown = shown;
  }

  async #poll() {
    clearTimeout(this.#timer);
    if (!document.hidden && !this.#denied) await (this.#asking ??= this.#ask().finally(() => (this.#asking = null)));
    clearTimeout(this.#timer);
    if (this.#shown) this.#timer = setTimeout(() => this.#poll(), PERIOD_MS);
  }

  #send(path, options) {
    const headers = { ...options.headers };
    if (this.token()) headers["Lockstep-Admin"] = this.token();
    return send(path, this.key(), { ...options, headers });
  }

  async #ask() {
    try {
      const answer = await this.#send("v1/cluster", { signal: AbortSignal.timeout(DEADLINE_MS) });
      this.take(clusterOf(answer));
    } catch (e) {
      this.trouble = e.message;
      if (e.status === 404 || e.status === 405) this.cluster = null;
      if (e.status === 401) {
        this.#denied = true;
        this.denied();
      }
    }
    this.changed();
  }

  take(cluster) {
    const samples = this.#samples;
    while (samples.length > 1 && cluster.time - samples[1].time >= RATE_S) samples.shift();
    const { links, time } = cluster;
    const before = samples[0];
    samples.push({ links, time });
    this.news = newsOf(cluster.events, this.cluster?.events);
    for (const d of cluster.deployments)
      this.history.set(d.name, [...(this.history.get(d.name) ?? []), d.tokens_per_second ?? 0].slice(-KEPT));
    this.cluster = { ...cluster, links: withRates(links, time, before) };
    this.trouble = "";
    this.at = performance.now();
  }

  /* What the server answers to up, down, move or plan. Throws ServerError with its sentence. */
  async change(what, body) {
    const headers = { "Content-Type": "application/json" };
    const answer = await this.#send(`v1/cluster/${what}`, { method: "POST", headers, body: JSON.stringify(body) });
    if (what !== "plan") await this.#poll();
    return answer;
  }
}
