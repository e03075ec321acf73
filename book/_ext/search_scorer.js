/* Ranks search results; Sphinx puts this file into its searchtools.js.
 *
 * A page counts for a query as much as for its rarest word: the page that says "ring" once
 * and "all-reduce" a hundred times is not about ring all-reduce. A long page has every word more
 * often, so counts are divided by the root of its length. Pages to look things up in
 * mention everything, and exercises name in their headings what a chapter explains, so they come
 * after a chapter unless their title is what was asked for.
 */
const REFERENCE_DISCOUNT = 8;

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  queryWords() {
    const query = (new URLSearchParams(window.location.search).get("q") || "").toLowerCase();
    const stemmer = new Stemmer();
    const compounds = query.match(/[a-z0-9]+(?:-[a-z0-9]+)+/g) || [];
    return splitQuery(query)
      .filter((word) => stopwords.indexOf(word) === -1)
      .map((word) => stemmer.stemWord(word))
      .concat(compounds);
  },

  score([docname, title, anchor, descr, score, filename]) {
    const counts = (typeof SEARCH_WEIGHTS !== "undefined" && SEARCH_WEIGHTS[docname]) || {};
    const length = Object.values(counts).reduce((sum, count) => sum + count, 1);
    const words = Scorer.queryWords();
    let count = Math.min(...words.map((word) => counts[word] || 1), Number.MAX_SAFE_INTEGER);
    const explains = docname.startsWith("notebooks/") && !docname.endsWith("/exercises");
    if (!explains) count /= REFERENCE_DISCOUNT;
    // All results of a page stay together, its best heading first.
    return 1000 * Math.log2(1 + 100 * count / Math.sqrt(length)) + score;
  },
};
