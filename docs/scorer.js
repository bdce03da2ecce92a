// Guides rank above background, and both above tutorials, the reference and the changelog.
const BACKGROUND = /^(theory|glossary|results|start\/index|howto\/index)/;
const LAST = /^(reference\/m|tutorials|architecture|changelog|terms|upstream)/;
var Scorer = {
  objNameMatch: 21,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) =>
    score + (LAST.test(page) ? 0 : BACKGROUND.test(page) ? 18 : 20),
};
