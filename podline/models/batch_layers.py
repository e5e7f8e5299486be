"""Batch norm and dropout over a whole batch, even if replicas share the batch.

With one replica the layers use TensorFlow's operations. With several, statistics cover the whole batch, and an
example's random numbers depend on its index in the whole batch. So a step computes the same for any number of replicas,
except for the order of additions. Each replica has a copy of moving statistics and random generators. All replicas
update their copies by the same computation, so the copies stay equal.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from podline.base.arrays import Tensor
from podline.base.errors import SettingsError


@keras.saving.register_keras_serializable(package="podline")
class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras's batch norm with one fused operation each for forward and backward pass.

    Keras 3 computes batch norm by a dozen small operations. With a fused one, a training step of a small ResNet took
    13-22 % less time on two CPU cores. Weights, configuration and results are those of Keras, except that the moving
    variance averages the batch's unbiased variance. The fused operation normalises the last axis, or axis 1 of
    images. Other axes, and inputs with a mask, use Keras's code; with several replicas they are refused.
    """

    def call(self, inputs: Tensor, training: bool | None = None, mask: Tensor = None) -> Tensor:
        """Normalise a batch (n, …, channels), or (n, channels, height, width) for axis 1."""
        rank = len(inputs.shape)
        axis = self.axis % rank
        if rank == 4 and axis in (1, 3) and mask is None:
            return self._normalised(inputs, training, axis)
        if axis == rank - 1 and mask is None:
            as_images = tf.reshape(inputs, [-1, 1, 1, inputs.shape[-1]])
            return tf.reshape(self._normalised(as_images, training, 3), tf.shape(inputs))
        if _replicas() > 1:
            raise SettingsError(
                f"batch norm {self.name}: axis={self.axis} of {rank} axes{' with a mask' if mask is not None else ''} "
                f"vs {_replicas()} replicas: only channels without a mask are normalised over a whole batch; train on "
                "one device, or normalise the channels"
            )
        return super().call(inputs, training=training, mask=mask)

    def _normalised(self, inputs: Tensor, training: bool | None, axis: int) -> Tensor:
        trains = bool(training and self.trainable)
        if trains and _replicas() > 1:
            return self._shared(inputs, axis)
        moving_mean: Tensor = self.moving_mean
        moving_variance: Tensor = self.moving_variance
        outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            inputs,
            *self._scale_and_offset(),
            mean=None if trains else tf.convert_to_tensor(moving_mean),
            variance=None if trains else tf.convert_to_tensor(moving_variance),
            epsilon=self.epsilon,
            data_format="NCHW" if axis == 1 else "NHWC",
            is_training=trains,
        )
        if trains:
            self._follow(mean, variance)
        return outputs

    def _shared(self, inputs: Tensor, channels: int) -> Tensor:
        """Normalise a replica's part of a batch by the mean and variance of the whole batch.

        Gradients flow through the all-reduced mean and variance: their gradients are averaged over the replicas.
        """
        context, dtype = tf.distribute.get_replica_context(), inputs.dtype
        inputs = tf.cast(inputs, tf.float32)
        axes = [axis for axis in range(4) if axis != channels]
        shape = [-1 if axis == channels else 1 for axis in range(4)]
        mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.reduce_mean(inputs, axes))
        centred = inputs - tf.reshape(mean, shape)
        variance = context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.reduce_mean(tf.square(centred), axes))
        gamma, beta = self._scale_and_offset()
        scale = tf.math.rsqrt(variance + self.epsilon) * gamma
        count = inputs.shape.num_elements() // inputs.shape[channels] * context.num_replicas_in_sync
        self._follow(mean, variance * (count / max(count - 1, 1)))
        return tf.cast(centred * tf.reshape(scale, shape) + tf.reshape(beta, shape), dtype)

    def _scale_and_offset(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Return scale and offset (channels,); 1 and 0 if the layer does not learn scale and offset."""
        mean: Tensor = self.moving_mean
        gamma = tf.ones(mean.shape) if self.gamma is None else tf.convert_to_tensor(self.gamma)
        beta = tf.zeros(mean.shape) if self.beta is None else tf.convert_to_tensor(self.beta)
        return gamma, beta

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Move the moving statistics towards a batch's mean and unbiased variance."""
        moving_mean: Tensor = self.moving_mean
        moving_variance: Tensor = self.moving_variance
        moving_mean.assign(moving_mean * self.momentum + mean * (1 - self.momentum))
        moving_variance.assign(moving_variance * self.momentum + variance * (1 - self.momentum))


@keras.saving.register_keras_serializable(package="podline")
class BatchDropout(keras.layers.Dropout):
    """Keras's dropout, with random numbers that depend on an example's index in the whole batch.

    Keras's layer would draw equal numbers in every replica. In this layer each replica draws numbers for the whole
    batch and uses its part, which is cheap for the features before a classifier.
    """

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        """Drop features of a batch, or of a replica's part of a batch, (n, …); several replicas need a static n."""
        if not (training and self.rate and _replicas() > 1):
            return super().call(inputs, training=training)
        context = tf.distribute.get_replica_context()
        share = inputs.shape[0]
        shape = [size or length for size, length in zip(self.noise_shape or inputs.shape, inputs.shape, strict=True)]
        whole = tf.ones([share * context.num_replicas_in_sync, *shape[1:]], inputs.dtype)
        # Zero for a dropped feature, else the scale that compensates for the dropped features.
        factors = keras.random.dropout(whole, self.rate, seed=self.seed_generator)
        first = tf.cast(context.replica_id_in_sync_group, tf.int32) * share
        return inputs * tf.ensure_shape(factors[first : first + share], [share, *shape[1:]])


def _replicas() -> int:
    return tf.distribute.get_strategy().num_replicas_in_sync
