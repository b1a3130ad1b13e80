// Package scenarios holds the scenario files: text that people read and write,
// each one behaviour with its claim, replayed through the simulator by this
// package's test and by `tapedeck-sim scenario FILE`. bugs/ holds the planted
// bugs that `make bugs` must see caught.
package scenarios
