package dispatch

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, lasting...) }

// lasting says which goroutines last as long as the process: those of FoundationDB, if it is built in.
var lasting []goleak.Option
