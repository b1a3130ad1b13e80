// Package sqlstore makes what a message does to an SQL database happen exactly
// once, although messages are delivered at least once.
//
// It owns one table in the user's database with a row for each partition of a
// subscription: the offset of the next message to apply, and the generation of
// the latest delivery that was seen. The row moves in the transaction that holds
// the message's effects, so there are both or neither:
//
//	begin
//	  move the row from offset o to o+1, if it is at o and not of a later generation
//	  what the message asks for
//	commit
//	ack
//
// Duties and invariants:
//   - The row is the truth, the broker's cursor follows it: a message is acked
//     only after the commit. A crash before the commit leaves nothing; one after
//     it, with or without the ack, leaves a message that comes again and is
//     found to be applied.
//   - Row and handler are in this order: the row's lock is held while the handler
//     works, so two members never apply the same message.
//   - A generation only rises in the row. A member that lost its partition and does
//     not know yet is fenced as soon as the new owner has seen a message: it gets
//     ErrFenced, its transaction is rolled back, and nothing is acked.
//   - Nothing is left out in silence: when the broker's cursor is ahead of the row,
//     as after the database came back from a backup, what lies between is fetched
//     and applied first. Where the broker leaves messages out on purpose, by a
//     filter or to a dead-letter topic, the row follows the broker.
//   - Rows name the subscription's id. One that was deleted and made again under
//     its name does not go on with them: that is ErrReplaced.
//
// Only effects in the same database are covered. It works with any database whose
// transactions isolate at READ COMMITTED or above and which locks a row that it
// updates: SQLite, PostgreSQL, MySQL. No driver is imported here.
//
// Offsets count messages of a partition from 0; ranges are [from, to).
package sqlstore
