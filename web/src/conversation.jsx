// conversation.jsx: the questions and answers of one conversation. It follows the answer while its end is in view.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Answer } from "./answer.jsx";
import { Icon } from "./icons.jsx";
import { Question } from "./question.jsx";
import { pathOf, titleOf } from "./tree.js";
import { Versions } from "./versions.jsx";

const NEAR_PX = 48;

/* What grows or makes room without a message (formulas, a window, files of a question) does not hide the end, either. */
function useFollowing(place, atEnd, toEnd) {
  const follows = useRef(atEnd);
  follows.current = atEnd;
  useEffect(() => {
    const observer = new ResizeObserver(() => follows.current && place.current && toEnd());
    observer.observe(place.current);
    observer.observe(place.current.querySelector("[role=log]"));
    return () => observer.disconnect();
  }, []);
}

/* on: {again(i), goOn(), edit(i, text), choose(i)}. */
export function Conversation({ conversation, run, on }) {
  const place = useRef(null);
  const [atEnd, setAtEnd] = useState(true);
  const { messages } = conversation;
  const path = pathOf(conversation);
  const toEnd = () => {
    place.current.scrollTop = place.current.scrollHeight;
  };
  const onScroll = ({ target: t }) => setAtEnd(t.scrollHeight - t.scrollTop - t.clientHeight < NEAR_PX);
  useLayoutEffect(() => {
    if (atEnd) toEnd();
  }, [messages, run?.lost]);
  useLayoutEffect(toEnd, [conversation.id, messages.length]);
  useFollowing(place, atEnd, toEnd);


  const show = (i) => {
    const message = messages[i];
    const isQuestion = message.role === "user";
    const last = i === path.at(-1);
    const choose = !run && <Versions messages={messages} at={i} of={isQuestion ? "question" : "answer"} onChoose={on.choose} />;
    if (isQuestion)
      return (
        <Question key={i} message={message} onResend={run ? null : (text) => on.edit(i, text)}>
          {choose}
        </Question>
      );
    return (
      <Answer
        key={i}
        answer={message}
        run={run?.at === i ? run : undefined}
        onAgain={run ? null : () => on.again(i)}
        onContinue={!run && last && (message.note || message.error) && message.content ? on.goOn : null}
      >
        {choose}
      </Answer>
    );
  };
  return (
    <div class="scroll" ref={place} onScroll={onScroll}>
      <h1 class="unseen">{titleOf(conversation)}</h1>
      <div class="column" role="log" aria-live="polite" aria-label="Conversation">
        {path.map(show)}
      </div>
      {!atEnd && (
        <button type="button" class="to-end" aria-label="To the end" onClick={toEnd}>
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}
