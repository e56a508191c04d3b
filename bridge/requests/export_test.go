package requests

import "github.com/pqbridge/pqbridge/subjects"

// WireError is an error of the table, and what replies say about it.
type WireError struct {
	Err  error
	Told subjects.Error
}

// WireErrors returns the table between errors and codes.
func WireErrors() (all []WireError) {
	for _, row := range wireErrors {
		told := subjects.Error{Code: row.code, Reason: row.reason, Unknown: row.unknown}
		for _, err := range row.errs {
			all = append(all, WireError{err, told})
		}
	}
	return all
}
