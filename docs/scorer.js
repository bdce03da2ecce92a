// Guides rank above tutorials, the reference and the changelog, but not above a name typed in full.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, , , , score]) =>
    score + (/^(reference\/m|tutorials|architecture|changelog|terms|upstream)/.test(page) ? 0 : 20),
};
