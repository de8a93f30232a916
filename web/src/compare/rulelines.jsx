// The rule, or the element, that a finding is put down to: of one side, or, where it is changed, of both.

/** @param rule of a finding; `instead` is what the second side has in its place */
export function RuleLines({ rule, sides }) {
  const first = rule.side === "b" ? 1 : 0;
  if (!rule.instead) return <Line side={sides[first]} at={rule} rule={rule.rule}>{rule.text}</Line>;
  const [one, other] = differing(rule.text, rule.instead.text);
  return (
    <>
      <Line side={sides[0]} at={rule} rule={rule.rule}><Marked words={one} /></Line>
      <Line side={sides[1]} at={rule} rule={rule.instead.rule}><Marked words={other} /></Line>
    </>
  );
}

const Line = ({ side, at, rule, children }) => <p class="rule-text"><small>{side.words} · {at.table} {at.chain} {rule}</small><code>{children}</code></p>;

const Marked = ({ words }) => words.map(([word, other], place) => <>{place > 0 && " "}{other ? <mark>{word}</mark> : word}</>);

/** The words of two texts, each with whether the other text lacks it: what remains beside their longest common part. */
export function differing(...texts) {
  const [one, other] = texts.map((text) => text.split(" "));
  const longest = Array.from({ length: one.length + 1 }, () => new Array(other.length + 1).fill(0));
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) longest[i][j] = one[i] === other[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  }
  const found = [[], []];
  let [i, j] = [0, 0];
  while (i < one.length || j < other.length) {
    if (i < one.length && j < other.length && one[i] === other[j]) {
      found[0].push([one[i++], false]);
      found[1].push([other[j++], false]);
    } else if (j === other.length || (i < one.length && longest[i + 1][j] >= longest[i][j + 1])) found[0].push([one[i++], true]);
    else found[1].push([other[j++], true]);
  }
  return found;
}
