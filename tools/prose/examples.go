// Package prose shows what the rules of English find: nobody heeds it. "Fences begin again" is anew.
//
// The queue of which nothing is known is stored under the name by which a processor finds it, and
// is one that waits. The page shows what is saved of a node, from what is stored: do not hurry. It
// is to be put back, says the log. A restore puts them back.
//
// No rule finds these: two shards, one of which leads, and all of which share one table; a node
// that others, none of which is ready, look at; only the one that changed. What is pending?
package prose
