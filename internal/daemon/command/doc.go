// Package command is what kubectl plugins have in common: how they connect, explain their errors,
// and describe themselves. It knows nothing about the objects that a plugin works on.
//
// A plugin fills in a [Plugin], passes its commands to [Plugin.Root], and runs the result by
// [Plugin.Execute]:
//
//	p := &command.Plugin{IOStreams: streams, Program: "kubectl-rings", Rights: "Reading needs …", Connection: connection}
//	root := p.Root(&cobra.Command{Short: "…", Long: "…"}, newListCommand(p), newShowCommand(p))
//	os.Exit(p.Execute(ctx, root, os.Args[1:]))
//
// Package output prints results as kubectl does, and package typo suggests corrections.
package command
