"""What ``graft-sglang doctor`` looks at: one module a check, and the findings they make."""
