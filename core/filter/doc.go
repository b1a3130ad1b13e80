// Package filter is the language in which a subscription says which messages it
// wants: a subset of CEL (the Common Expression Language), over attributes alone.
//
//	attributes.region == "eu" && !has(attributes.test) || attributes.name.startsWith("a")
//
// It owns the language: Parse reads it and refuses what is not of it with the
// place, Match decides of one message's attributes.
//
// # Language
//
//	or        = and { "||" and }
//	and       = not { "&&" not }
//	not       = { "!" } term
//	term      = "(" or ")" | "true" | "false" | "has" "(" attribute ")" | text "in" "attributes"
//	          | attribute ( "==" | "!=" ) text | attribute "in" "[" text { "," text } "]"
//	          | attribute "." ( "startsWith" | "endsWith" | "contains" ) "(" text ")"
//	attribute = "attributes" ( "." name | "[" text "]" )
//	text      = CEL's strings in "…" or '…', with \\ \" \' \n \r \t \uXXXX
//
// # Invariants
//
//   - Match of equal filters and attributes is equal, everywhere and always: what
//     one replica leaves out the others would leave out, too.
//   - An attribute that a message lacks equals no text and begins with none, so
//     != holds of it; has(…) tells it from an empty one. CEL calls that an error.
//   - A filter has at most MaxBytes and nests at most MaxDepth deep, so deciding
//     takes bounded time and stack.
//
// # Units
//
// Places count bytes from 1.
package filter
