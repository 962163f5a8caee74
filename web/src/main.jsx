// main.jsx: puts the page into the document, in place of what is seen until the program has come.
import { render } from "preact";
import { App } from "./app.jsx";

const root = document.getElementById("root");
root.replaceChildren();
render(<App />, root);
