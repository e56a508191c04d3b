package bridge

// WireError is a row of the table between errors and codes.
type WireError struct {
	Err     error
	Code    int
	Unknown bool
}

// WireErrors returns the table.
func WireErrors() []WireError {
	var rows []WireError
	for _, row := range wireErrors {
		rows = append(rows, WireError{row.err, row.code, row.unknown})
	}
	return rows
}

// Codes returns the codes of metrics.
func Codes() []int { return codes }
