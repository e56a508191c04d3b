package state

// Each runs a step for each queue, or part, until one fails.
func Each[Q any](parts []Q, step func(Q) error) error {
	for _, q := range parts {
		if err := step(q); err != nil {
			return err
		}
	}
	return nil
}

// InOrder runs steps until one fails.
func InOrder(steps ...func() error) error {
	return Each(steps, func(step func() error) error { return step() })
}
