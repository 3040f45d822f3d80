// Package command has the commands of the program placement: controller and agent. It does not
// depend on controller-runtime, so that the program stays small in the pods of a pool.
package command
