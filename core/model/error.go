package model

import (
	"fmt"
	"time"
)

// Code is a status code with the meaning and the number gRPC gives it.
type Code uint32

// Codes in use.
const (
	OK                 Code = 0
	Canceled           Code = 1
	Unknown            Code = 2
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	AlreadyExists      Code = 6
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Unimplemented      Code = 12
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
)

// Reason is the machine-readable cause, carried as google.rpc.ErrorInfo.reason.
type Reason string

// Reasons of the error table.
const (
	ReasonThrottled       Reason = "THROTTLED"
	ReasonDiskFull        Reason = "DISK_FULL"
	ReasonNoLeader        Reason = "NO_LEADER"
	ReasonStaleMap        Reason = "STALE_MAP"
	ReasonNotLeader       Reason = "NOT_LEADER"
	ReasonSequenceGap     Reason = "SEQUENCE_GAP"
	ReasonSequenceTooOld  Reason = "SEQUENCE_TOO_OLD"
	ReasonSequenceUnknown Reason = "SEQUENCE_UNKNOWN"
	ReasonFenced          Reason = "FENCED"
	ReasonOffsetTooOld    Reason = "OFFSET_TOO_OLD"
	ReasonOffsetTooNew    Reason = "OFFSET_TOO_NEW"
	ReasonUnknownOutcome  Reason = "UNKNOWN_OUTCOME"
)

// Error is what a client gets instead of an answer. Every field beyond Code and
// Message is optional; which reason carries which is the error table's business.
type Error struct {
	Code       Code
	Reason     Reason
	Message    string
	RetryAfter time.Duration // > 0: google.rpc.RetryInfo
	Leader     NodeID        // NOT_LEADER: who leads, if known
	Expected   uint64        // SEQUENCE_*: expected sequence; FENCED: current epoch or generation
	Start, End Offset        // OFFSET_*: log start and end
	Field      string        // INVALID_ARGUMENT: the field at fault
}

// Error implements error.
func (e *Error) Error() string {
	if e.Reason != "" {
		return string(e.Reason) + ": " + e.Message
	}
	return e.Message
}

// Retryable says whether the same call may succeed later, unchanged.
func (e *Error) Retryable() bool {
	switch e.Reason {
	case ReasonThrottled, ReasonDiskFull, ReasonNoLeader, ReasonStaleMap, ReasonNotLeader, ReasonUnknownOutcome:
		return true
	}
	return e.Code == Unavailable
}

// Errorf builds an error without a reason.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid builds an INVALID_ARGUMENT that names the field at fault.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: InvalidArgument, Field: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// Reasoned builds an error with a reason and, if retry > 0, a retry hint.
func Reasoned(code Code, reason Reason, retry time.Duration, format string, args ...any) *Error {
	return &Error{Code: code, Reason: reason, RetryAfter: retry, Message: fmt.Sprintf(format, args...)}
}

// ValidateName checks a topic, subscription, producer, member or node name
// against [a-z0-9._-]{1,128}.
func ValidateName(field, name string) *Error {
	if name == "" {
		return Invalid(field, "is empty; use 1 to %d of a-z 0-9 . _ -", MaxNameBytes)
	}
	if name == "." || name == ".." {
		return Invalid(field, "is %q, which no path can name; use another", name)
	}
	if len(name) > MaxNameBytes {
		return Invalid(field, "has %d characters; at most %d are allowed", len(name), MaxNameBytes)
	}
	i := 0
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return Invalid(field, "%q has %q at position %d; only a-z 0-9 . _ - are allowed", name, c, i)
		}
		i++
	}
	return nil
}
