# SPDX-License-Identifier: Apache-2.0
"""What converts ops for the toy device alone."""
