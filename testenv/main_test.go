package testenv_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, testenv.FDBGoroutines()...)
}
