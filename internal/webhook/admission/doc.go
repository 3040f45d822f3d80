// Package admission restores labels inside the request that creates a Node. It is a mutating
// admission webhook that decides by [preserve.Admit], reads records from a cache, and stores
// nothing. The marker of the Node names the revision of the record that the labels came from. If
// the record has a later revision by now, or if the webhook did not answer, the processors restore
// the labels as they do without a webhook.
//
// The marker is valid only if the processors would have restored the same labels. While they run
// with different flags ([Peers]), the webhook gates Nodes instead.
//
// The webhook never rejects a request: a node that cannot join is worse than a node without its
// labels.
//
// The field manager [agents.Webhook] owns the fields that the webhook sets. The API server computes
// managedFields before it calls webhooks, so the patch adds its own entry.
package admission
