// Package client is the Go client of Tapedeck: producers, subscribers, reading
// without a subscription, and administration.
//
// It owns connections, goroutines and the wall clock around core/session, whose
// decisions it carries out and does not make.
//
// Duties and invariants:
//   - A producer gives every accepted message exactly one result. Messages of one
//     key arrive in the order they were published, retries included. When its
//     queue is full, publishing waits.
//   - A subscriber acks a message after it was processed: after the callback came
//     back without an error, or after the loop asked for the next one.
//   - A request goes to the node that leads what it is about, as far as that is
//     known, else to any; a node that cannot be reached is passed over for a while.
//   - Every error of a call is an *Error.
//
// Sizes are bytes, offsets count messages of a partition from 0.
package client
