// Package byhand carries out what people ask for: it writes the requests, waits for their effect,
// and says what came of them. It prints nothing.
//
// None of it goes around the decision or a precondition:
//
//   - Save and restore put the transaction that a watcher would record of the Node as it is now ([Requests]).
//   - Set and import write a record, conditional on the one that was read ([Edit], [Import]).
//   - Forget and prune leave a floor in place of a record ([Forget], [Prune]).
//   - Discard and retry change what is in the queue ([Discard], [Retry]).
package byhand
