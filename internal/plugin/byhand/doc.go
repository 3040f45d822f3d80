// Package byhand implements manual operations: it writes requests, waits for their effect, and
// returns the outcome. It prints nothing.
//
// No operation bypasses the decision or a precondition:
//
//   - Save and restore put the transaction that a watcher would record for the current Node ([Requests]).
//   - Set and import write a record, conditional on the record that was read ([Edit], [Import]).
//   - Forget and prune replace a record with a floor ([Forget], [Prune]).
//   - Discard and retry change the queue ([Discard], [Retry]).
package byhand
