// conversation.jsx: the questions and answers of one conversation. It follows the answer while its end is in view.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Answer } from "./answer.jsx";
import { Icon } from "./icons.jsx";
import { Question } from "./question.jsx";

const NEAR_PX = 48;

export function Conversation({ conversation, run, onAgain }) {
  const place = useRef(null);
  const [atEnd, setAtEnd] = useState(true);
  const { messages } = conversation;
  const lastQuestion = messages.findLastIndex((m) => m.role === "user");
  const toEnd = () => {
    place.current.scrollTop = place.current.scrollHeight;
  };
  const onScroll = ({ target: t }) => setAtEnd(t.scrollHeight - t.scrollTop - t.clientHeight < NEAR_PX);
  useLayoutEffect(() => {
    if (atEnd) toEnd();
  }, [messages, run?.lost]);
  useLayoutEffect(toEnd, [conversation.id, messages.length]);

  const show = (message, i) => {
    const last = i === messages.length - 1;
    if (message.role === "user")
      return <Question key={i} text={message.content} onResend={i === lastQuestion && !run ? onAgain : null} />;
    return <Answer key={i} answer={message} run={last ? run : undefined} onAgain={last ? () => onAgain() : null} />;
  };
  return (
    <div class="scroll" ref={place} onScroll={onScroll}>
      <div class="column" role="log" aria-live="polite" aria-label="Conversation">
        {messages.map(show)}
      </div>
      {!atEnd && (
        <button type="button" class="to-end" aria-label="To the end" onClick={toEnd}>
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}
