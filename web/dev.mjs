// dev.mjs: the built page at http://127.0.0.1:PORT/, everything else from a running lockstep serve.
//
//   node dev.mjs http://127.0.0.1:8080 [PORT]
import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";

const [server, port = 8090] = process.argv.slice(2);
const built = new URL("../src/api/", import.meta.url);

createServer((req, res) => {
  if (req.url === "/") return res.setHeader("Content-Type", "text/html; charset=utf-8").end(readFileSync(new URL("page.html", built)));
  if (/^\/page\/[\w.-]+$/.test(req.url)) return res.setHeader("Content-Type", "text/javascript").end(readFileSync(new URL(`.${req.url}`, built)));
  const onward = request(new URL(req.url, server), { method: req.method, headers: req.headers }, (answer) => {
    res.writeHead(answer.statusCode, answer.headers);
    answer.pipe(res);
  });
  onward.on("error", () => res.writableEnded || res.destroy());
  res.on("close", () => onward.destroy());
  req.pipe(onward);
}).listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/`));
